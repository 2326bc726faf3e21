//! Checks that a session has one open run, and each run follows the one before.

use std::sync::Arc;

use backstop_event_log::{Batch, LogError, MemoryLog, RunWriter, read_events, session_of_fork};
use futures_util::future::join_all;

use super::history::{
    Log, begin, beside, dispatched, finished, following, forked, open, records, reopen, started,
    warning, whole, write,
};

/// Asserts that a run did not begin because of another run of its session.
#[track_caller]
fn is_in_the_way(begun: Result<RunWriter, LogError>, other: &str) {
    match begun {
        Err(LogError::SessionBusy { session, run, .. }) => {
            assert_eq!((session.as_str(), run.as_str()), ("s", other));
        }
        other => panic!("a session has one run at a time: {other:?}"),
    }
}

async fn last(log: &Log, session: &str) -> Option<String> {
    let last = log.last_root(&session.into()).await.expect("it is read");
    last.map(|last| last.run.to_string())
}

pub(super) async fn has_one_open_run_a_session(log: Log) {
    let mut writer = open(&log, "run_1", "s", 40).await;
    is_in_the_way(begin(&log, "run_2", 41, started("s")).await, "run_1");
    is_in_the_way(begin(&log, "run_2", 41, following("s", "run_1")).await, "run_1");
    drop(open(&log, "run_3", "s-2", 41).await);
    write(&mut writer, 42, [finished()]).await.expect("it ends");
    drop(begin(&log, "run_2", 43, following("s", "run_1")).await.expect("the session is free"));
    is_in_the_way(begin(&log, "run_4", 44, following("s", "run_2")).await, "run_2");
}

pub(super) async fn refuses_a_run_that_does_not_follow_the_last(log: Log) {
    whole(&log, "run_1", "s", 40).await;
    is_in_the_way(begin(&log, "run_2", 42, started("s")).await, "run_1");
    is_in_the_way(begin(&log, "run_2", 42, following("s", "run_0")).await, "run_1");
    let mut next = begin(&log, "run_2", 43, following("s", "run_1")).await.expect("it follows");
    write(&mut next, 44, [finished()]).await.expect("it ends");
    is_in_the_way(begin(&log, "run_3", 45, following("s", "run_1")).await, "run_2");
    assert_eq!(last(&log, "s").await.as_deref(), Some("run_2"), "what is refused is no run");
}

pub(super) async fn lets_a_dispatched_run_share_the_session(log: Log) {
    let mut writer = open(&log, "run_1", "s", 40).await;
    let one = begin(&log, "run_2", 41, dispatched("s", "run_1")).await.expect("it shares");
    let mut two = begin(&log, "run_3", 41, dispatched("s", "run_1")).await.expect("it shares");
    let known = log.summary(&"run_2".into()).await.expect("it is read").expect("it is known");
    assert_eq!(known.parent, Some("run_1".into()), "what dispatched it is kept");
    assert_eq!(last(&log, "s").await.as_deref(), Some("run_1"), "it is no root");
    write(&mut writer, 42, [finished()]).await.expect("it ends");
    let next = begin(&log, "run_4", 43, following("s", "run_1")).await;
    assert!(next.is_ok(), "a dispatched run that is open is in no root's way: {next:?}");
    write(&mut two, 44, [finished()]).await.expect("it ends");
    assert_eq!(last(&log, "s").await.as_deref(), Some("run_4"));
    drop(one);
}

pub(super) async fn begins_one_of_many_runs_of_a_session(log: Log) {
    let begins = (0..8).map(|number| {
        let log = Arc::clone(&log);
        let run = format!("run_{number}");
        tokio::spawn(async move { begin(&log, &run, 40, started("s")).await })
    });
    let (mut begun, mut refused) = (Vec::new(), 0);
    for result in join_all(begins).await {
        match result.expect("a start does not panic") {
            Ok(writer) => begun.push(writer),
            Err(LogError::SessionBusy { .. }) => refused += 1,
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!((begun.len(), refused), (1, 7));
    assert_eq!(last(&log, "s").await.as_deref(), Some(begun[0].summary().run.as_str()));
}

pub(super) async fn finds_the_last_root_of_a_session(log: Log) {
    assert_eq!(last(&log, "s").await, None);
    whole(&log, "run_z", "s", 90).await;
    // The clock was set back: a session has the order of its runs, not of their times.
    let begun = begin(&log, "run_a", 80, following("s", "run_z")).await;
    let mut two = begun.expect("it follows the last");
    drop(begin(&log, "run_b", 99, dispatched("s", "run_a")).await.expect("it shares the session"));
    drop(open(&log, "run_c", "s-2", 99).await);
    assert_eq!(last(&log, "s").await.as_deref(), Some("run_a"), "neither by time nor by name");
    let known = log.last_root(&"s".into()).await.expect("it is read").expect("it is there");
    assert_eq!((known.messages, known.last_seq), (2, 1), "the transcript goes on");
    write(&mut two, 92, [finished()]).await.expect("it ends");
    let known = log.last_root(&"s".into()).await.expect("it is read").expect("it is there");
    assert_eq!(known.last_seq, 2, "it is as new as its last event");
}

pub(super) async fn lets_runs_that_are_dispatched_together_be_open_at_once(log: Log) {
    whole(&log, "run_0", "s", 30).await;
    let mut first = begin(&log, "run_1", 40, following("s", "run_0")).await.expect("it follows");
    let early = begin(&log, "run_9", 41, beside("s", "run_0", "run_8")).await;
    is_in_the_way(early, "run_1");
    is_in_the_way(begin(&log, "run_9", 41, beside("s", "run_9", "run_1")).await, "run_1");
    let begun = begin(&log, "run_2", 41, beside("s", "run_0", "run_1")).await;
    let mut branch = begun.expect("it was dispatched with the first");
    assert_eq!(branch.summary().branch_of, Some("run_1".into()));
    let known = log.summary(&"run_2".into()).await.expect("it is read").expect("it is known");
    assert_eq!(&known, branch.summary(), "what it is a branch of is kept");
    write(&mut first, 42, [finished()]).await.expect("it ends");
    let late = begin(&log, "run_3", 42, beside("s", "run_0", "run_1")).await;
    let mut late = late.expect("a branch may begin when the first has ended");
    assert_eq!(last(&log, "s").await.as_deref(), Some("run_1"), "a branch is not followed");
    write(&mut branch, 43, [finished()]).await.expect("it ends");
    is_in_the_way(begin(&log, "run_4", 44, following("s", "run_1")).await, "run_3");
    write(&mut late, 45, [finished()]).await.expect("it ends");
    drop((first, branch, late));
    let mut next = begin(&log, "run_4", 46, following("s", "run_1")).await.expect("all have ended");
    is_in_the_way(begin(&log, "run_5", 47, beside("s", "run_0", "run_1")).await, "run_4");
    is_in_the_way(reopen(&log, "run_2", 47).await, "run_4");
    write(&mut next, 48, [finished()]).await.expect("it ends");
    let reopened = reopen(&log, "run_2", 49).await.expect("nothing follows a branch");
    is_in_the_way(begin(&log, "run_5", 50, following("s", "run_4")).await, "run_2");
    drop(reopened);
}

/// A fork has the records of another run, and continues separately.
pub(super) async fn a_copied_run_has_a_session_of_its_own(log: Log) {
    let mut original = open(&log, "run_1", "s", 40).await;
    write(&mut original, 41, [warning("kept"), warning("left out")]).await.expect("it is appended");
    let (_, mut events) = read_events(&*log, &"run_1".into()).await.expect("it is read");
    events.truncate(2);
    let mut copied = records(&log, "run_1").await;
    copied.truncate(2);
    let mut copy = RunWriter::copy(Arc::clone(&log), "run_2".into(), &events, copied);
    write(&mut copy, 42, [forked("run_2", "run_1", 2)])
        .await
        .expect("a copy has a session of its own");
    let (summary, events) = read_events(&*log, &"run_2".into()).await.expect("it is read");
    let session = session_of_fork(&"run_2".into());
    assert_eq!((&summary.session, summary.last_seq, events.len()), (&session, 3, 3));
    assert_eq!(&summary, copy.summary(), "a summary is kept whole");
    assert_eq!(last(&log, session.as_str()).await.as_deref(), Some("run_2"));
    assert_eq!(last(&log, "s").await.as_deref(), Some("run_1"), "the parent is untouched");
    assert_eq!(records(&log, "run_1").await.len(), 3);
    write(&mut original, 43, [finished()]).await.expect("the parent goes on");
    let early = begin(&log, "run_3", 43, following(session.as_str(), "run_2")).await;
    assert!(matches!(early, Err(LogError::SessionBusy { .. })), "the copy is open: {early:?}");
    write(&mut copy, 44, [finished()]).await.expect("the copy goes on");
    let next = following(session.as_str(), "run_2");
    drop(begin(&log, "run_3", 45, next).await.expect("a copy can be followed"));
}

/// A restored backup, or a run that was copied from another store: its earlier runs may be elsewhere.
pub(super) async fn imports_a_run_without_the_one_before(log: Log) {
    let elsewhere: Log = Arc::new(MemoryLog::new());
    whole(&elsewhere, "run_1", "s", 40).await;
    let followed = begin(&elsewhere, "run_2", 42, following("s", "run_1")).await;
    write(&mut followed.expect("it follows"), 43, [finished()]).await.expect("it ends");
    let (summary, _) = read_events(&*elsewhere, &"run_2".into()).await.expect("it is read");
    let import = async |log: &Log| {
        let claim = log.claim_new(&"run_2".into());
        let records = records(&elsewhere, "run_2").await;
        let batch = Batch::new("run_2".into(), claim.epoch(), records, summary.clone());
        log.append(batch.importing()).await
    };
    import(&log).await.expect("an import needs no run before it");
    let (known, _) = read_events(&*log, &"run_2".into()).await.expect("it is read");
    assert_eq!(known, summary, "a summary is kept whole");
    assert_eq!(last(&log, "s").await.as_deref(), Some("run_2"), "it is a run of its session");
    let again = import(&log).await;
    assert!(matches!(again, Err(LogError::Conflict { .. })), "the run exists: {again:?}");
    is_in_the_way(begin(&log, "run_3", 44, started("s")).await, "run_2");
    drop(begin(&log, "run_3", 45, following("s", "run_2")).await.expect("it can be followed"));
}
