//! Background pruning, and segments of subscriptions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use backstop_event_log::{Cursor, RunState, Subscription};
use backstop_retention::{RunRow, StoreRetention, Upkeep, expired_until, prune_segments};
use layer0::Timestamp;
use layer0::id::RunId;

use crate::shelf::Shelf;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(1_000 * seconds)
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// Spec: S10. A store is pruned each ten minutes, and when its clock was set back.
#[test]
fn store_is_pruned_each_ten_minutes() {
    let upkeep = Upkeep::new(StoreRetention::default());
    let due: Vec<_> = [0, 0, 1, 599, 600, 601, 1_199, 1_200, 7, 8, 606, 607]
        .into_iter()
        .filter(|second| upkeep.due(at(*second)).is_some())
        .collect();
    assert_eq!(due, [0, 600, 1_200, 7, 607]);
}

/// Spec: S10, S11
#[test]
fn removed_texts_are_known_for_a_year() {
    const YEAR: i64 = 365 * 24 * 60 * 60;
    assert_eq!(expired_until(at(YEAR + 7)), at(7));
}

/// Spec: S10
#[test]
fn due_pass_prunes_by_its_process_s_retention() {
    let aged = StoreRetention::default().runs(Duration::from_secs(9));
    let upkeep = Upkeep::new(aged);
    assert_eq!((upkeep.due(at(0)), upkeep.retention()), (Some(aged), aged));
}

/// Spec: S10
#[test]
fn runs_end_only_where_asked() {
    assert!(!Upkeep::new(StoreRetention::default()).ends_runs());
    let aged = StoreRetention::default().runs(Duration::from_secs(9));
    assert!(Upkeep::new(aged).ends_runs());
}

/// Sets a flag when dropped.
struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Starts a pass that never ends by itself, and returns whether it was dropped.
fn begin_endless_pass(upkeep: &Upkeep) -> Arc<AtomicBool> {
    let is_dropped = Arc::new(AtomicBool::new(false));
    let flag = Flag(Arc::clone(&is_dropped));
    upkeep.watch(|earlier| {
        tokio::spawn(async move {
            let _flag = flag;
            earlier.wait_for_end().await;
            std::future::pending::<()>().await;
        })
    });
    is_dropped
}

/// Spec: S10
#[test]
fn stop_ends_every_pass() {
    block_on(async {
        let upkeep = Upkeep::new(StoreRetention::default());
        let (first, second) = (begin_endless_pass(&upkeep), begin_endless_pass(&upkeep));
        tokio::task::yield_now().await;
        assert!(!first.load(Ordering::SeqCst), "the next pass awaits it");
        upkeep.stop().await;
        assert!(second.load(Ordering::SeqCst));
        tokio::task::yield_now().await;
        assert!(first.load(Ordering::SeqCst), "the one it waited for ends with it");
    });
}

fn segment(id: i64, run: &str, ended_at: i64) -> RunRow {
    RunRow {
        id,
        run: RunId::from(run),
        session: "s".into(),
        state: RunState::Running.as_str().to_owned(),
        parent: None,
        follows: None,
        last_seq: 2,
        ended_at: at(ended_at),
    }
}

/// Spec: S10, X2. The newest segment of a subscription stays, however old it is.
#[test]
fn newest_segment_stays() {
    let rows = [("mail.1", 1), ("mail.2", 50), ("mail.3", 1), ("other.1", 1), ("other.2", 1)];
    let rows = rows.iter().enumerate().map(|(place, (name, ended_at))| {
        segment(i64::try_from(place).unwrap(), &format!("sub_{name}"), *ended_at)
    });
    let mut shelf = Shelf::new(9, rows.collect());
    let subscription = |name: &str, newest| Subscription::new(name, "*", newest, Cursor::start());
    shelf.subscriptions = vec![subscription("mail", 3), subscription("other", 2)];
    let removed = block_on(prune_segments(&shelf, Duration::from_secs(60), at(100))).unwrap();
    assert_eq!(removed.runs, [RunId::from("sub_mail.1"), RunId::from("sub_other.1")]);
    let removed = block_on(prune_segments(&shelf, Duration::from_secs(60), at(200))).unwrap();
    assert_eq!(removed.runs, [RunId::from("sub_mail.2")]);
    shelf.subscriptions = vec![subscription("mail", 4)];
    let removed = block_on(prune_segments(&shelf, Duration::from_secs(60), at(61))).unwrap();
    assert_eq!(removed.runs, [], "the last event is just that old");
    let removed = block_on(prune_segments(&shelf, Duration::from_secs(60), at(62))).unwrap();
    assert_eq!(removed.runs, [RunId::from("sub_mail.3")]);
    assert!(shelf.removals.lock().unwrap().iter().all(|removal| removal.is_segment));
    shelf.subscriptions.clear();
    let removed = block_on(prune_segments(&shelf, Duration::from_secs(60), at(200))).unwrap();
    assert_eq!(removed.runs, [], "nobody knows what an unknown subscription needs");
}
