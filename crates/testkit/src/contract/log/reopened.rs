//! Checks of a log that is opened again, and of two open handles.

use std::sync::Arc;

use backstop_event_log::{
    Claim, Cursor, Decision, EventFilter, EventLog, LogError, RunWriter, Settlement, read_events,
};
use layer0::code;
use layer0::event::{ApprovalDenied, ToolResolved, Verdict};

use super::history::{
    Log, at, begin, below, dispatched, finished, following, input, open, resume, send, settle,
    started, warning, whole, write,
};
use crate::contract::approvals::asked;
use crate::contract::subscriptions::{begin_segment, move_to, subscription};
use crate::contract::suite::{Open, woken};

type Place = Open<dyn EventLog>;

pub(super) async fn keeps_runs(place: Place) {
    let log = place().await;
    let mut writer = open(&log, "run_1", "s", 10).await;
    write(&mut writer, 11, [warning("quote ' zero \u{0}")]).await.expect("it is appended");
    let before = read_events(&*log, &"run_1".into()).await.expect("it is read");
    drop((writer, log));
    let log = place().await;
    let after = read_events(&*log, &"run_1".into()).await.expect("it is read");
    assert_eq!(before, after);
    let mut writer = resume(&log, "run_1").await;
    write(&mut writer, 12, [finished()]).await.expect("the run goes on");
}

pub(super) async fn keeps_epochs(place: Place) {
    let log = place().await;
    drop(open(&log, "run_1", "s", 10).await);
    let claim = log.claim(&"run_1".into()).await.expect("the run is free");
    let before = claim.epoch();
    drop((claim, log));
    let log = place().await;
    let claim = log.claim(&"run_1".into()).await.expect("the run is free");
    assert!(claim.epoch() > before, "epoch {} after {before}", claim.epoch());
}

pub(super) async fn keeps_requests(place: Place) {
    let log = place().await;
    let mut writer = open(&log, "run_1", "s", 10).await;
    write(&mut writer, 11, [asked("apr_1", "c1")]).await.expect("it is appended");
    assert!(send(&*log, input("run_1", "go on"), 12).await);
    let (inbox, open) = (log.inbox(&"run_1".into()).await, log.open_approvals().await);
    let before = (inbox.expect("it is read"), open.expect("they are read"));
    drop((writer, log));
    let log = place().await;
    let (inbox, open) = (log.inbox(&"run_1".into()).await, log.open_approvals().await);
    assert_eq!((inbox.expect("it is read"), open.expect("they are read")), before);
    assert_eq!((before.0.len(), before.1.len()), (1, 1));
}

/// A log that outlives its process may fail to be read, and nothing but its watch makes a writer read again.
pub(super) async fn wakes_again_while_a_request_waits(place: Place) {
    let (here, there) = (place().await, place().await);
    let _writer = open(&here, "run_1", "s", 10).await;
    let mut watches = [&here, &there].map(|log| log.watch_inbox(&"run_1".into()));
    assert!(send(&*here, input("run_1", "go on"), 11).await);
    // At first a watch is ready, then for the request.
    for _ in 0..4 {
        for watch in &mut watches {
            woken("a request that nobody has taken wakes again", watch.wait_for_change()).await;
        }
    }
}

/// A row that replaced an accepted request would lose it.
pub(super) async fn gives_new_requests_ids_of_their_own(place: Place) {
    let log = place().await;
    drop(open(&log, "run_1", "s", 10).await);
    assert!(send(&*log, input("run_1", "first"), 11).await);
    let before = log.inbox(&"run_1".into()).await.expect("it is read");
    drop(log);
    let log = place().await;
    assert!(send(&*log, input("run_1", "second"), 12).await);
    let after = log.inbox(&"run_1".into()).await.expect("it is read");
    let requests: Vec<_> = after.iter().map(|message| &message.request).collect();
    assert_eq!(requests, [&input("run_1", "first"), &input("run_1", "second")], "none is replaced");
    assert_eq!(after[0], before[0], "a row keeps its id");
    assert_ne!(after[0].id, after[1].id, "each row has an id of its own");
    let mut writer = resume(&log, "run_1").await;
    writer.take(after[1].id);
    write(&mut writer, 13, [warning("recorded")]).await.expect("it is appended");
    assert_eq!(log.inbox(&"run_1".into()).await.expect("it is read"), before);
}

/// A late decision is refused as such, whenever the expiry was recorded.
pub(super) async fn keeps_expired_approvals(place: Place) {
    let log = place().await;
    let mut writer = open(&log, "run_1", "s", 10).await;
    write(&mut writer, 11, [asked("apr_1", "c1")]).await.expect("it is appended");
    let expired = ApprovalDenied::new("apr_1", "c1", "ops", code::APPROVAL_EXPIRED);
    write(&mut writer, 12, [expired.into()]).await.expect("it is appended");
    drop((writer, log));
    let log = place().await;
    let late = log.decide(&"apr_1".into(), Decision::approve("ops"), at(13)).await;
    let is_it = matches!(&late, Err(LogError::ApprovalExpired(id)) if id.as_str() == "apr_1");
    assert!(is_it, "the approval has expired: {late:?}");
}

pub(super) async fn keeps_settlements(place: Place) {
    let log = place().await;
    let mut writer = open(&log, "run_1", "s", 10).await;
    let resolved = ToolResolved::new("c1", "ops", Verdict::Happened, None, "ops says so");
    write(&mut writer, 11, [resolved.into()]).await.expect("it is appended");
    let again = |call: &str| settle("run_1", call, Settlement::did_not("lead"));
    assert!(send(&*log, again("c2"), 12).await);
    drop((writer, log));
    let log = place().await;
    assert!(!send(&*log, again("c1"), 13).await, "a settlement of the call is recorded");
    assert!(!send(&*log, again("c2"), 13).await, "a settlement of the call is pending");
    assert!(send(&*log, again("c3"), 13).await, "no settlement of the call is known");
}

/// Followers keep their cursors longer than a process lives.
pub(super) async fn keeps_cursors(place: Place) {
    let log = place().await;
    whole(&log, "run_1", "s-1", 10).await;
    let filter = EventFilter::new();
    let before = match log.read_feed(&filter, &Cursor::start()).await {
        // Not every log can be followed.
        Err(LogError::Failed(_)) => return,
        page => page.expect("a page is read"),
    };
    drop(log);
    let log = place().await;
    whole(&log, "run_2", "s-2", 20).await;
    for (read, record) in before.records.iter().enumerate() {
        let kept: Cursor = record.cursor.to_string().parse().expect("its text is a cursor");
        let page = log.read_feed(&filter, &kept).await;
        let page = page.unwrap_or_else(|error| panic!("{kept} is a cursor of this log: {error:?}"));
        let rest = &before.records[read + 1..];
        assert_eq!(&page.records[..rest.len()], rest, "the events after {kept}");
        assert_eq!(page.records.len(), rest.len() + 2, "the new events too");
    }
}

/// A behaviour host reads here which events have ended.
pub(super) async fn keeps_subscriptions(place: Place) {
    let log = place().await;
    match log.subscription("tell").await {
        // Not every log keeps subscriptions.
        Err(LogError::Failed(_)) => return,
        known => assert_eq!(known.expect("it is read"), None, "a log begins empty"),
    }
    let mut writer = begin_segment(&log, "tell", 1).await.expect("a segment begins");
    writer.move_subscription(move_to("tell", 1, 7, [("run_1", Some(3)), ("run_2", Some(4))]));
    write(&mut writer, 11, [warning("ended")]).await.expect("it is appended");
    let before = subscription(&log, "tell").await;
    drop((writer, log));
    let log = place().await;
    assert_eq!(subscription(&log, "tell").await, before);
    let mut writer = resume(&log, "sub_tell.1").await;
    writer.move_subscription(move_to("tell", 1, 8, [("run_1", None)]));
    write(&mut writer, 12, [warning("ended")]).await.expect("the segment continues");
    let moved = subscription(&log, "tell").await;
    assert_eq!((moved.cursor, moved.positions.len()), (Cursor::behind(8, None), 1));
}

pub(super) async fn keeps_the_last_root(place: Place) {
    let log = place().await;
    whole(&log, "run_z", "s", 90).await;
    drop(begin(&log, "run_a", 80, following("s", "run_z")).await.expect("it follows"));
    drop(log);
    let log = place().await;
    let last = log.last_root(&"s".into()).await.expect("it is read");
    assert_eq!(last.map(|last| last.run), Some("run_a".into()));
    let busy = begin(&log, "run_b", 91, following("s", "run_z")).await.err();
    assert!(
        matches!(busy, Some(LogError::SessionBusy { .. })),
        "the session is not free: {busy:?}"
    );
}

/// Two handles are like two processes.
pub(super) async fn a_run_has_one_writer_by_whatever_handle(place: Place) {
    let (one, two) = (place().await, place().await);
    let mut writer = open(&one, "run_1", "s", 10).await;
    let refused = two.claim(&"run_1".into()).await;
    assert!(matches!(refused, Err(LogError::Claimed(_))), "{refused:?}");
    let summary = two.summary(&"run_1".into()).await.expect("it is read").expect("it is known");
    let stolen = Claim::new(Claim::FIRST + 99, ());
    let mut thief = RunWriter::resume(Arc::clone(&two), summary, stolen);
    let refused = write(&mut thief, 11, [warning("stolen")]).await;
    assert!(matches!(refused, Err(LogError::Conflict { .. })), "{refused:?}");
    write(&mut writer, 12, [finished()]).await.expect("the writer goes on");
    let (summary, _) = read_events(&*two, &"run_1".into()).await.expect("it is read");
    assert_eq!(&summary, writer.summary(), "what one writes, the other reads");
    drop(writer);
    drop(two.claim(&"run_1".into()).await.expect("a claim ends with its writer"));
}

pub(super) async fn a_session_has_one_open_run_by_whatever_handle(place: Place) {
    let (one, two) = (place().await, place().await);
    let _writer = open(&one, "run_1", "s", 10).await;
    let busy = begin(&two, "run_2", 11, started("s")).await.err();
    assert!(matches!(busy, Some(LogError::SessionBusy { .. })), "{busy:?}");
}

/// Claims a run once it is free, which is soon after its claim was dropped.
async fn claimed(log: &Log, run: &str) -> Claim {
    loop {
        match log.claim(&run.into()).await {
            Err(LogError::Claimed(_)) => tokio::task::yield_now().await,
            claim => return claim.expect("it is there"),
        }
    }
}

/// The claim of a root covers its child runs.
pub(super) async fn a_tree_has_one_owner_by_whatever_handle(place: Place) {
    let (one, two) = (place().await, place().await);
    let root = open(&one, "run_1", "s", 10).await;
    let below = begin(&one, "run_2", 11, below("s", "run_2", "run_1")).await.expect("it begins");
    let alone = begin(&one, "run_3", 11, dispatched("s", "run_1")).await.expect("it begins");
    let summary = below.summary().clone();
    drop((below, alone));
    let refused = two.claim(&"run_2".into()).await;
    assert!(matches!(refused, Err(LogError::Claimed(_))), "its root has an owner: {refused:?}");
    drop(claimed(&two, "run_3").await);
    drop(root);
    let below = claimed(&two, "run_2").await;
    let refused = one.claim(&"run_1".into()).await;
    assert!(matches!(refused, Err(LogError::Claimed(_))), "a run of it has an owner: {refused:?}");
    let epoch = below.epoch();
    drop(below);
    let _root = claimed(&one, "run_1").await;
    let mut overtaken = RunWriter::resume(two, summary, Claim::new(epoch, ()));
    let refused = write(&mut overtaken, 12, [warning("late")]).await;
    assert!(matches!(refused, Err(LogError::Conflict { .. })), "{refused:?}");
}
