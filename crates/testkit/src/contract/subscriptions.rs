//! The contract of an event log about subscriptions.

use std::sync::Arc;

use backstop_event_log::{
    Claim, Cursor, LogError, Moves, RunFilter, RunWriter, Subscription, segment_id,
};
use layer0::event::{EventKind, SubscriptionOpened};
use layer0::id::RunId;

use super::log::history::{Log, open, records, resume, warning, write};
use super::suite::{Suite, checks};

/// Checks event logs against the contract of [`EventLog`](backstop_event_log::EventLog) about subscriptions: an append
/// moves a subscription in the same write, under the claim of its newest segment, and segments are no runs. `make` makes
/// an empty log for each trial.
///
/// Behaviours need such a log: one that ignores [`Batch::moves`](backstop_event_log::Batch::moves) would deliver every
/// event again after a restart, or none. [`reopened_event_log`](super::reopened_event_log) checks that subscriptions
/// outlive the process.
///
/// ```
/// use std::sync::Arc;
///
/// use backstop_event_log::MemoryLog;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// backstop_testkit::contract::subscriptions(async || Arc::new(MemoryLog::new()) as _).check().await;
/// # }
/// ```
///
/// Specification: X2, X4.
pub fn subscriptions(make: impl AsyncFn() -> Log + Send + Sync + 'static) -> Suite {
    Suite::new(
        make,
        checks![
            begins_with_the_first_segment,
            continues_in_the_next_segment,
            keeps_subscriptions_apart,
            lists_segments_only_when_asked,
            lists_subscriptions_by_name,
            moves_with_an_append,
            moves_without_an_event,
            refuses_a_segment_that_is_not_next,
            refuses_moves_of_an_overtaken_writer,
            segments_need_no_session,
        ],
    )
}

/// The pattern of these subscriptions.
const PATTERN: &str = "run.failed quote ' umlaut \u{e4}";

pub(super) fn move_to(
    name: &str,
    segment: u64,
    cursor: u64,
    positions: impl IntoIterator<Item = (&'static str, Option<u64>)>,
) -> Moves {
    let mut moves = Moves::new(name, PATTERN, segment);
    moves.cursor = Some(Cursor::behind(cursor, None));
    moves.positions = positions.into_iter().map(|(run, seq)| (run.into(), seq)).collect();
    moves
}

/// Starts a segment, without a new position.
pub(super) async fn begin_segment(
    log: &Log,
    name: &str,
    segment: u64,
) -> Result<RunWriter, LogError> {
    let mut writer = RunWriter::new(Arc::clone(log), segment_id(name, segment));
    writer.move_subscription(Moves::new(name, PATTERN, segment));
    write(&mut writer, 60, [opened(name)]).await?;
    Ok(writer)
}

fn opened(name: &str) -> EventKind {
    SubscriptionOpened::new(name, PATTERN).into()
}

async fn begun(log: &Log, name: &str) -> RunWriter {
    let begun = begin_segment(log, name, 1).await;
    begun.unwrap_or_else(|error| panic!("a segment of `{name}` begins: {error:?}"))
}

async fn find(log: &Log, name: &str) -> Option<Subscription> {
    log.subscription(name).await.expect("a subscription is read")
}

pub(super) async fn subscription(log: &Log, name: &str) -> Subscription {
    find(log, name).await.unwrap_or_else(|| panic!("there is a subscription `{name}`"))
}

fn positions(subscription: &Subscription) -> Vec<(&str, u64)> {
    subscription.positions.iter().map(|(run, seq)| (run.as_str(), *seq)).collect()
}

async fn begins_with_the_first_segment(log: Log) {
    assert_eq!(find(&log, "tell").await, None, "a log begins without subscriptions");
    let _writer = begun(&log, "tell").await;
    let expected = Subscription::new("tell", PATTERN, 1, Cursor::start());
    assert_eq!(subscription(&log, "tell").await, expected);
    assert_eq!(find(&log, "tel").await, None, "a name is no prefix");
    let mut other = RunWriter::new(Arc::clone(&log), segment_id("quote ' %", 1));
    other.move_subscription(move_to("quote ' %", 1, 9, [("run_1", Some(2))]));
    write(&mut other, 61, [opened("quote ' %")]).await.expect("it is appended");
    let found = subscription(&log, "quote ' %").await;
    assert_eq!(found.cursor, Cursor::behind(9, None), "a position that it starts with");
    assert_eq!(positions(&found), [("run_1", 2)]);
}

async fn moves_with_an_append(log: Log) {
    let mut writer = begun(&log, "tell").await;
    writer.move_subscription(move_to("tell", 1, 7, [("run_1", Some(3)), ("run_2", Some(1))]));
    write(&mut writer, 61, [warning("ended")]).await.expect("it is appended");
    let first = subscription(&log, "tell").await;
    assert_eq!(first.cursor, Cursor::behind(7, None));
    assert_eq!(positions(&first), [("run_1", 3), ("run_2", 1)]);
    // Without a cursor, only the positions change.
    let mut moves = Moves::new("tell", PATTERN, 1);
    moves.positions = vec![("run_1".into(), Some(5)), ("run_2".into(), None)];
    moves.positions.push(("run_3".into(), None));
    writer.move_subscription(moves);
    write(&mut writer, 62, [warning("ended")]).await.expect("it is appended");
    let second = subscription(&log, "tell").await;
    assert_eq!(second.cursor, first.cursor, "a move without a cursor leaves it");
    assert_eq!(positions(&second), [("run_1", 5)]);
    write(&mut writer, 63, [warning("kept")]).await.expect("it is appended");
    assert_eq!(subscription(&log, "tell").await, second, "an append without a move leaves it");
    assert_eq!(records(&log, "sub_tell.1").await.len(), 4, "the records are kept too");
}

async fn moves_without_an_event(log: Log) {
    let mut writer = begun(&log, "tell").await;
    let moves = move_to("tell", 1, 8, [("run_1", Some(4))]);
    writer.move_subscription_alone(moves).await.expect("it moves");
    let moved = subscription(&log, "tell").await;
    assert_eq!((moved.cursor, positions(&moved)), (Cursor::behind(8, None), vec![("run_1", 4)]));
    assert_eq!(records(&log, "sub_tell.1").await.len(), 1, "nothing is appended");
    write(&mut writer, 61, [warning("next")]).await.expect("the next event follows");
}

async fn continues_in_the_next_segment(log: Log) {
    let mut first = begun(&log, "tell").await;
    let moves = move_to("tell", 1, 7, [("run_1", Some(3))]);
    first.move_subscription_alone(moves).await.expect("it moves");
    let mut second = RunWriter::new(Arc::clone(&log), segment_id("tell", 2));
    second.move_subscription(Moves::new("tell", "run.*", 2));
    write(&mut second, 62, [opened("tell")]).await.expect("the next segment begins");
    let mut expected = Subscription::new("tell", "run.*", 2, Cursor::behind(7, None));
    expected.positions.insert("run_1".into(), 3);
    assert_eq!(subscription(&log, "tell").await, expected, "the position is kept");
}

async fn refuses_a_segment_that_is_not_next(log: Log) {
    let mut first = begun(&log, "tell").await;
    let _second = begin_segment(&log, "tell", 2).await.expect("the next segment begins");
    let before = subscription(&log, "tell").await;
    let skipped = begin_segment(&log, "tell", 4).await.err();
    assert!(matches!(skipped, Some(LogError::Conflict { .. })), "3 is next: {skipped:?}");
    let known = log.summary(&segment_id("tell", 4)).await.expect("it is read");
    assert_eq!(known, None, "a refused batch changes nothing");
    first.move_subscription(move_to("tell", 1, 9, [("run_1", Some(3))]));
    let late = write(&mut first, 63, [warning("late")]).await;
    assert!(matches!(late, Err(LogError::Conflict { .. })), "2 is newer: {late:?}");
    assert_eq!(records(&log, "sub_tell.1").await.len(), 1, "a refused batch changes nothing");
    assert_eq!(subscription(&log, "tell").await, before);
}

/// The next host has read the position already.
async fn refuses_moves_of_an_overtaken_writer(log: Log) {
    let writer = begun(&log, "tell").await;
    let (summary, segment) = (writer.summary().clone(), writer.summary().run.clone());
    drop(writer);
    let epoch = log.claim(&segment).await.expect("the segment is free").epoch();
    let _newer = resume(&log, segment.as_str()).await;
    let before = subscription(&log, "tell").await;
    for has_event in [false, true] {
        let stale = Claim::new(epoch, ());
        let mut overtaken = RunWriter::resume(Arc::clone(&log), summary.clone(), stale);
        let moves = move_to("tell", 1, 9, [("run_1", Some(3))]);
        let refused = if has_event {
            overtaken.move_subscription(moves);
            write(&mut overtaken, 62, [warning("late")]).await
        } else {
            overtaken.move_subscription_alone(moves).await
        };
        assert!(matches!(refused, Err(LogError::Conflict { .. })), "{refused:?}");
        assert_eq!(subscription(&log, "tell").await, before, "a refused batch moves nothing");
    }
}

async fn keeps_subscriptions_apart(log: Log) {
    let mut one = begun(&log, "tell").await;
    let mut two = begun(&log, "tell.1").await;
    let of_two = subscription(&log, "tell.1").await;
    one.move_subscription_alone(move_to("tell", 1, 7, [("run_1", Some(3))])).await.expect("a move");
    assert_eq!(subscription(&log, "tell.1").await, of_two);
    let moves = move_to("tell.1", 1, 9, [("run_1", None)]);
    two.move_subscription_alone(moves).await.expect("it moves");
    assert_eq!(positions(&subscription(&log, "tell").await), [("run_1", 3)]);
}

async fn lists_subscriptions_by_name(log: Log) {
    let all = async || log.subscriptions().await.expect("subscriptions are listed");
    assert!(all().await.is_empty(), "a log begins without subscriptions");
    for name in ["b", "c", "a"] {
        drop(begun(&log, name).await);
    }
    let mut second = begin_segment(&log, "a", 2).await.expect("the next segment begins");
    second.move_subscription_alone(move_to("a", 2, 5, [])).await.expect("it moves");
    let all = all().await;
    let listed: Vec<_> = all.iter().map(|it| (&*it.name, it.segment, it.cursor)).collect();
    let start = Cursor::start();
    assert_eq!(listed, [("a", 2, Cursor::behind(5, None)), ("b", 1, start), ("c", 1, start)]);
    assert!(all.iter().all(|it| &*it.pattern == PATTERN));
}

async fn lists_segments_only_when_asked(log: Log) {
    let _segment = begun(&log, "tell").await;
    let _run = open(&log, "run_1", "s", 61).await;
    let listed = async |filter: RunFilter| -> Vec<RunId> {
        let runs = log.runs(filter).await.expect("runs are listed");
        runs.into_iter().map(|run| run.run).collect()
    };
    assert_eq!(listed(RunFilter::new()).await, [RunId::from("run_1")], "a segment is no run");
    assert_eq!(listed(RunFilter::new().segments()).await, [segment_id("tell", 1)]);
}

/// Several segments are open at the same time, next to the runs of any session.
async fn segments_need_no_session(log: Log) {
    let _one = begun(&log, "one").await;
    let mut two = begun(&log, "two").await;
    let next = begin_segment(&log, "two", 2).await;
    let _next = next.expect("a segment may begin while others are open");
    write(&mut two, 62, [warning("kept")]).await.expect("an earlier segment is still writable");
    let _run = open(&log, "run_1", "s", 63).await;
}
