//! Behaviours on logs in memory and in SQLite.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod ageing;
mod caused;
mod deaths;
mod failing;
mod hosts;
mod leases;
mod listing;
mod moving;
mod redelivering;
mod settling;
mod troubled;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use backstop_behaviors::{
    BehaviorHost, BehaviorHostBuilder, Delivery, FnBehavior, Serving, behavior,
};
use backstop_clock::{Clock, SystemClock};
use backstop_event_log::{
    EventLog, MemoryLog, RunFilter, RunWriter, Seed, read_events, segment_id, verify_run,
};
use backstop_store_sqlite::Database;
use layer0::event::{Actor, AgentRecord, Event, EventKind, RunStarted, Warning};
use layer0::{JsonText, Timestamp};

type Seen = Arc<Mutex<Vec<Delivery>>>;

/// A behaviour that records its events.
fn noting(name: &str, pattern: &str, seen: &Seen) -> FnBehavior {
    let seen = Arc::clone(seen);
    behavior(name, pattern.parse().unwrap(), move |delivery, _| {
        let seen = Arc::clone(&seen);
        async move {
            seen.lock().unwrap().push(delivery);
            Ok(())
        }
    })
}

/// Returns the delivered warnings: their runs, and their numbers among the run's warnings.
fn places(seen: &Seen) -> Vec<(String, u64)> {
    let seen = seen.lock().unwrap();
    seen.iter().map(|delivery| (delivery.run.to_string(), delivery.seq - 1)).collect()
}

/// Appends warnings to a run, after its start.
async fn warn(log: &Arc<dyn EventLog>, run: &str, count: u64) {
    let mut writer = match log.summary(&run.into()).await.unwrap() {
        Some(summary) => {
            let claim = log.claim(&run.into()).await.unwrap();
            RunWriter::resume(Arc::clone(log), summary, claim)
        }
        None => {
            let mut writer = RunWriter::new(Arc::clone(log), run.into());
            let agent = AgentRecord::new("a", "", JsonText::default());
            let started = RunStarted::new("go", format!("ses_{run}").into(), agent).into();
            writer.stage(&Seed::new("s"), Timestamp::default(), Actor::Runtime, None, started);
            drop(writer.commit().await.unwrap());
            writer
        }
    };
    for number in 1..=count {
        let kind = Warning::new(format!("number {number}")).into();
        writer.stage(&Seed::new("s"), Timestamp::default(), Actor::Runtime, None, kind);
        drop(writer.commit().await.unwrap());
    }
}

fn memory() -> Arc<dyn EventLog> {
    Arc::new(MemoryLog::new())
}

fn host(log: &Arc<dyn EventLog>) -> BehaviorHostBuilder {
    BehaviorHost::builder(Arc::clone(log))
}

async fn settled(serving: &Serving) {
    assert!(serving.settle(Duration::from_secs(20)).await, "deliveries end");
}

async fn short_while() {
    SystemClock.sleep(Duration::from_millis(10)).await;
}

/// Waits until subscriptions exist.
async fn opened(log: &Arc<dyn EventLog>, names: &[&str]) {
    for name in names {
        while log.subscription(name).await.unwrap().is_none() {
            short_while().await;
        }
    }
}

async fn record(log: &Arc<dyn EventLog>, name: &str, segment: u64) -> Vec<Event> {
    let run = segment_id(name, segment);
    verify_run(&**log, &run).await.unwrap();
    read_events(&**log, &run).await.unwrap().1
}

fn types(events: &[Event]) -> Vec<&'static str> {
    events.iter().map(|event| event.kind.event_type()).collect()
}

/// Spec: X1, X2, X4. On a log in memory and on a file.
#[tokio::test(flavor = "multi_thread")]
async fn each_event_is_delivered_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let durability = backstop_store_sqlite::Durability::Normal;
    let database = Database::open(&path, durability).await.unwrap();
    for log in [memory(), Arc::new(database.log()) as Arc<dyn EventLog>] {
        let (seen, late) = (Seen::default(), Seen::default());
        warn(&log, "run_1", 2).await;
        let all = noting("all of it", "warning", &seen).start(backstop_behaviors::Start::Start);
        let serving = host(&log)
            .behavior(all)
            .behavior(noting("late", "warning[seq>2]", &late))
            .build()
            .unwrap()
            .serve();
        opened(&log, &["all of it", "late"]).await;
        warn(&log, "run_2", 3).await;
        settled(&serving).await;
        serving.stop().await;
        let run_1 = [("run_1".to_owned(), 1), ("run_1".to_owned(), 2)];
        let run_2 = (1..=3).map(|seq| ("run_2".to_owned(), seq));
        let expected: Vec<_> = run_1.into_iter().chain(run_2).collect();
        let mut all = places(&seen);
        all.sort();
        assert_eq!(all, expected);
        assert_eq!(places(&late), [("run_2".to_owned(), 2), ("run_2".to_owned(), 3)]);
        let first = seen.lock().unwrap()[0].clone();
        assert_eq!(first.id, format!("all of it/{}/2", first.run));
        let events = record(&log, "late", 1).await;
        assert_eq!(types(&events)[..2], ["subscription.opened", "behavior.delivered"]);
        let completed = types(&events).iter().filter(|it| **it == "behavior.completed").count();
        assert_eq!(completed, 2);
        // It is not a run.
        let runs = log.runs(RunFilter::new()).await.unwrap();
        assert_eq!(runs.len(), 2, "{runs:?}");
        assert_eq!(log.runs(RunFilter::new().segments()).await.unwrap().len(), 2);
        // No event is delivered again.
        let again = host(&log).behavior(noting("late", "warning[seq>2]", &late)).build().unwrap();
        let serving = again.serve();
        settled(&serving).await;
        serving.stop().await;
        assert_eq!(places(&late).len(), 2);
    }
}

/// Spec: X4. A changed pattern holds from where the subscription is, in a segment of its own.
#[tokio::test(flavor = "multi_thread")]
async fn changed_pattern_begins_a_segment() {
    let (log, seen) = (memory(), Seen::default());
    let first = host(&log).behavior(noting("b", "warning", &seen)).build().unwrap().serve();
    opened(&log, &["b"]).await;
    warn(&log, "run_1", 1).await;
    settled(&first).await;
    first.stop().await;
    warn(&log, "run_2", 2).await;
    let second = host(&log).behavior(noting("b", "warning[seq=3]", &seen)).build().unwrap().serve();
    settled(&second).await;
    second.stop().await;
    assert_eq!(places(&seen), [("run_1".to_owned(), 1), ("run_2".to_owned(), 2)]);
    let (one, two) = (record(&log, "b", 1).await, record(&log, "b", 2).await);
    let EventKind::SubscriptionOpened(opened) = &two[0].kind else { panic!("{two:?}") };
    assert_eq!(opened.follows, Some(segment_id("b", 1)));
    assert_eq!(opened.head, one.last().map(|event| event.hash));
    assert_eq!(&*opened.pattern, "warning[seq=3]");
}

/// Spec: X4
#[tokio::test(flavor = "multi_thread")]
async fn full_segment_is_followed_by_another() {
    let (log, seen) = (memory(), Seen::default());
    let serving = host(&log).behavior(noting("b", "warning", &seen)).build().unwrap().serve();
    opened(&log, &["b"]).await;
    warn(&log, "run_1", 5_100).await;
    settled(&serving).await;
    serving.stop().await;
    let expected: Vec<_> = (1..=5_100).map(|seq| ("run_1".to_owned(), seq)).collect();
    assert_eq!(places(&seen), expected, "in the order of the run");
    assert_eq!(log.subscription("b").await.unwrap().unwrap().segment, 2);
    let (one, two) = (record(&log, "b", 1).await, record(&log, "b", 2).await);
    assert!(one.len() >= 10_000 && one.len() < 10_010, "{}", one.len());
    assert_eq!(one.len() + two.len(), 2 * 5_100 + 2);
}
