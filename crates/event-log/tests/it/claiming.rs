//! Releases of claims of this process.

use std::sync::{Arc, Mutex};

use backstop_event_log::{Claims, RunReservation};
use layer0::id::RunId;

/// Reserves a run, and records the epochs with which it is released.
fn reserve(claims: &Claims, epoch: u64) -> (RunReservation, Arc<Mutex<Vec<Option<u64>>>>) {
    let freed = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&freed);
    let release = move |epoch| noted.lock().unwrap().push(epoch);
    (claims.reserve(&"run_1".into(), epoch, release).unwrap(), freed)
}

fn freed(freed: &Mutex<Vec<Option<u64>>>) -> Vec<Option<u64>> {
    freed.lock().unwrap().clone()
}

/// Spec: D8. A claim whose answer was not heard may have been given: it is freed under any epoch.
#[test]
fn unheard_claim_is_freed() {
    let claims = Claims::default();
    let (mut reserved, log) = reserve(&claims, 0);
    reserved.asking();
    drop(reserved);
    assert_eq!(freed(&log), [None]);
}

/// Spec: D8
#[test]
fn refused_claim_frees_nothing() {
    let claims = Claims::default();
    let (reserved, log) = reserve(&claims, 0);
    drop(reserved);
    assert_eq!(freed(&log), [], "it was not asked for");
    let (mut reserved, log) = reserve(&claims, 0);
    reserved.asking();
    reserved.mark_refused();
    drop(reserved);
    assert_eq!(freed(&log), []);
}

/// Spec: D8
#[test]
fn claim_is_freed_under_its_epoch() {
    let claims = Claims::default();
    let (mut reserved, log) = reserve(&claims, 0);
    reserved.asking();
    let claim = reserved.claim(7);
    assert_eq!(claims.still_held(), [(RunId::from("run_1"), 7)]);
    assert!(claims.reserve(&"run_1".into(), 8, |_| ()).is_none());
    drop(claim);
    assert_eq!(freed(&log), [Some(7)]);
    assert_eq!(claims.still_held(), []);

    let (reserved, log) = reserve(&claims, 0);
    let claim = reserved.claim(9);
    claims.mark_released(&"run_1".into());
    assert_eq!(claims.still_held(), [], "its last event has freed it");
    drop(claim);
    assert_eq!(freed(&log), []);
}

/// Spec: D8, J2. A claim belongs to the owner for which it was asked.
#[test]
fn asked_claim_is_lost_with_its_owner() {
    let (old, new): (Arc<str>, Arc<str>) = ("old".into(), "new".into());
    let run = RunId::from("run_1");
    type Step<'a> = &'a dyn Fn(&Claims);
    let (ask_old, ask_new): (Step<'_>, Step<'_>) =
        (&|claims| claims.ask_for(&run, &old), &|claims| claims.ask_for(&run, &new));
    let lose_old: Step<'_> = &|claims| claims.lose_all(&old);
    for (steps, is_lost) in [
        (&[lose_old][..], false),
        (&[lose_old, ask_new], false),
        (&[ask_new, lose_old], false),
        (&[ask_old, lose_old], true),
        (&[ask_old, lose_old, ask_new], false),
    ] {
        let claims = Claims::default();
        let (mut reserved, _log) = reserve(&claims, 0);
        reserved.asking();
        steps.iter().for_each(|step| step(&claims));
        let claim = reserved.claim(7);
        assert_eq!(claims.is_lost(&run), is_lost);
        drop(claim);
    }
}

/// Spec: D8, J2. A lost claim is not freed at the close: it may be another's.
#[test]
fn lost_claim_is_not_held() {
    let claims = Claims::default();
    let (reserved, _log) = reserve(&claims, 0);
    let claim = reserved.claim(7);
    assert!(!claims.is_lost(&"run_1".into()));
    claims.lose_all("this");
    assert!(claims.is_lost(&"run_1".into()));
    assert_eq!(claims.still_held(), []);
    drop(claim);
    assert!(!claims.is_lost(&"run_1".into()));
    let epochs = [claims.new_epoch(), claims.new_epoch(), claims.new_epoch()];
    assert!(epochs.is_sorted_by(|one, other| one < other), "no two are the same: {epochs:?}");
}

/// Spec: D8, J2. A claim that was made anew meanwhile is not lost.
#[test]
fn claim_is_lost_under_its_epoch() {
    let (claims, run) = (Claims::default(), RunId::from("run_1"));
    let (reserved, _log) = reserve(&claims, 0);
    let claim = reserved.claim(7);
    claims.lose(&[(run.clone(), 6), ("run_2".into(), 7)]);
    assert!(!claims.is_lost(&run));
    claims.lose(&[(run.clone(), 7)]);
    assert!(claims.is_lost(&run));
    drop(claim);
}
