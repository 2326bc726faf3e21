//! Checks that the text of an event can be erased.

use std::sync::Arc;

use backstop_event_log::{LogError, Payload, RunWriter, read_events, verify, verify_run};

use super::history::{Log, finished, forked, open, records, resume, warning, write};

/// Writes a run of three events; the second one is private.
async fn told(log: &Log) {
    let mut writer = open(log, "run_1", "s", 70).await;
    let told = write(&mut writer, 71, ["private", "public"].map(warning)).await;
    told.expect("it is appended");
}

async fn erase(log: &Log, seq: u64) -> Vec<String> {
    let copies = log.erase(&"run_1".into(), seq).await.expect("an event is erased");
    copies.iter().map(ToString::to_string).collect()
}

pub(super) async fn erases_what_an_event_says(log: Log) {
    told(&log).await;
    let whole = records(&log, "run_1").await;
    for _ in 0..2 {
        assert!(erase(&log, 2).await.is_empty(), "no run holds a copy, also when asked again");
        let left = records(&log, "run_1").await;
        let digest = whole[1].payload.digest().expect("it has a salt");
        assert_eq!(left[1].payload, Payload::Erased(digest));
        assert_eq!((&left[0], &left[2]), (&whole[0], &whole[2]), "the others stay");
    }
    let read = read_events(&*log, &"run_1".into()).await;
    assert!(matches!(&read, Err(LogError::Erased { seq: 2, .. })), "{read:?}");
}

pub(super) async fn verifies_what_was_erased(log: Log) {
    told(&log).await;
    erase(&log, 2).await;
    let summary = log.summary(&"run_1".into()).await.expect("it is read").expect("it is known");
    assert!(verify(&records(&log, "run_1").await, &summary, log.key()).is_ok(), "the chain holds");
    let mut writer = resume(&log, "run_1").await;
    write(&mut writer, 72, [finished()]).await.expect("it can be ended");
    let verified = verify_run(&*log, &"run_1".into()).await.expect("it verifies");
    assert_eq!((verified.erased, verified.summary.last_seq), (vec![2], 4));
}

pub(super) async fn names_the_runs_that_hold_a_copy(log: Log) {
    told(&log).await;
    let (_, events) = read_events(&*log, &"run_1".into()).await.expect("it is read");
    let whole = records(&log, "run_1").await;
    let mut copy = RunWriter::copy(Arc::clone(&log), "run_2".into(), &events, whole.clone());
    write(&mut copy, 71, [forked("run_2", "run_1", 3)]).await.expect("a copy is kept");
    for _ in 0..2 {
        assert_eq!(erase(&log, 2).await, ["run_2"], "also when asked again");
    }
    assert_eq!(records(&log, "run_2").await[..3], whole, "a copy is its own");
}

/// Verifies a copy of which the last copied text was erased, and its original.
pub(super) async fn verifies_a_copy_without_its_last_text(log: Log) {
    let mut writer = open(&log, "run_1", "s", 70).await;
    write(&mut writer, 80, [warning("private")]).await.expect("it is appended");
    drop(writer);
    let (_, events) = read_events(&*log, &"run_1".into()).await.expect("it is read");
    let whole = records(&log, "run_1").await;
    let mut copy = RunWriter::copy(Arc::clone(&log), "run_2".into(), &events, whole);
    write(&mut copy, 5_000, [forked("run_2", "run_1", 2)]).await.expect("a copy is kept");
    drop(copy);
    assert_eq!(erase(&log, 2).await, ["run_2"]);
    log.erase(&"run_2".into(), 2).await.expect("the copy's text is erased");
    for run in ["run_1", "run_2"] {
        let verified = verify_run(&*log, &run.into()).await;
        assert_eq!(verified.expect("it verifies").erased, [2], "{run}");
    }
}

pub(super) async fn erases_nothing_it_cannot(log: Log) {
    let missing = log.erase(&"run_1".into(), 1).await;
    assert!(matches!(&missing, Err(LogError::NotFound(_))), "no run: {missing:?}");
    let writer = open(&log, "run_1", "s", 70).await;
    let refused = log.erase(&"run_1".into(), 1).await;
    assert!(matches!(&refused, Err(LogError::Claimed(_))), "its writer lives: {refused:?}");
    drop(writer);
    let before = records(&log, "run_1").await;
    for seq in [0, 2, 9] {
        let unknown = log.erase(&"run_1".into(), seq).await;
        let is_it = matches!(&unknown, Err(LogError::NotErasable { seq: at, .. }) if *at == seq);
        assert!(is_it, "{unknown:?}");
    }
    assert_eq!(records(&log, "run_1").await, before);
}
