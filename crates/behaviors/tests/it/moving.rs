//! The position of a subscription after events that are not delivered.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use backstop_behaviors::{Start, behavior};
use backstop_clock::{Clock, VirtualClock};
use backstop_event_log::{Cursor, EventFilter, EventLog};
use backstop_store_postgres::Database as Postgres;
use backstop_store_sqlite::{Database, Durability};
use backstop_testkit::PostgresServer;
use layer0::Timestamp;
use layer0::error::OperatorError;

use super::{Seen, host, memory, noting, opened, record, settled, short_while, types, warn};

async fn stands(log: &Arc<dyn EventLog>, name: &str) -> Cursor {
    log.subscription(name).await.unwrap().unwrap().cursor
}

async fn stopped_host_moves(log: Arc<dyn EventLog>) {
    let seen = Seen::default();
    // One subscription whose events are read and do not match, and one whose events are not read at all.
    let never = noting("never", "warning[message=never*]", &seen).start(Start::Start);
    let none = noting("none", "run.failed", &seen).start(Start::Start);
    let serving = host(&log).behavior(never).behavior(none).build().unwrap().serve();
    opened(&log, &["never", "none"]).await;
    warn(&log, "run_1", 20).await;
    settled(&serving).await;
    serving.stop().await;
    let filter = EventFilter::new().run("run_1");
    let run = log.read_feed(&filter, &Cursor::start()).await.unwrap();
    let last = run.records.last().unwrap().cursor.number();
    for name in ["never", "none"] {
        let at = stands(&log, name).await.number();
        assert!(at >= last, "{name} stands at {at:?}, and has read {last:?}");
        assert_eq!(types(&record(&log, name, 1).await), ["subscription.opened"]);
    }
}

/// Spec: X2, D9
#[tokio::test(flavor = "multi_thread")]
async fn subscription_moves_past_unwanted_events() {
    stopped_host_moves(memory()).await;
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(&folder.path().join("a.db"), Durability::Normal).await.unwrap();
    stopped_host_moves(Arc::new(database.log())).await;
    database.close().await;
    let Some(server) = PostgresServer::shared() else { return };
    let database = Postgres::connect(&server.database().await).await.unwrap();
    stopped_host_moves(Arc::new(database.log())).await;
    database.close().await;
}

/// Spec: X2, D9. A host that dies has moved what it serves meanwhile.
#[tokio::test]
async fn subscription_moves_while_nothing_is_delivered() {
    let clock = VirtualClock::starting_at(Timestamp::default());
    let (log, seen, time) = (memory(), Seen::default(), clock.clone());
    let waiting = behavior("waiting", "warning".parse().unwrap(), move |_, _| {
        let time = time.clone();
        async move {
            time.sleep(Duration::from_secs(120)).await;
            Ok(())
        }
    });
    let waiting = waiting.start(Start::Start).timeout(Duration::from_secs(600));
    let never = noting("never", "warning[message=never*]", &seen).start(Start::Start);
    let serving = host(&log).behavior(waiting).behavior(never).clock(Arc::new(clock.clone()));
    let serving = serving.build().unwrap().serve();
    opened(&log, &["waiting", "never"]).await;
    let before = stands(&log, "never").await;
    warn(&log, "run_1", 1).await;
    while clock.monotonic() < Duration::from_secs(120) {
        short_while().await;
    }
    warn(&log, "run_2", 1).await;
    while stands(&log, "never").await == before {
        short_while().await;
    }
    drop(serving);
}

/// Spec: X3. The limit of an attempt may be longer than the time that attempts usually have together.
#[tokio::test]
async fn long_attempts_are_tried_again() {
    for seconds in [10, 130] {
        let clock = VirtualClock::starting_at(Timestamp::default());
        let (log, time, runs) = (memory(), clock.clone(), Arc::<AtomicU32>::default());
        let counted = Arc::clone(&runs);
        let slow = behavior("slow", "warning".parse().unwrap(), move |_, _| {
            counted.fetch_add(1, Ordering::SeqCst);
            let time = time.clone();
            async move {
                time.sleep(Duration::from_secs(seconds)).await;
                Err(OperatorError::Retryable("busy".into()).into())
            }
        });
        warn(&log, "run_1", 1).await;
        let slow = slow.start(Start::Start).timeout(Duration::from_secs(600)).attempts(3);
        let serving = host(&log).behavior(slow).clock(Arc::new(clock)).build().unwrap().serve();
        opened(&log, &["slow"]).await;
        while !types(&record(&log, "slow", 1).await).contains(&"behavior.failed") {
            short_while().await;
        }
        serving.stop().await;
        assert_eq!(runs.load(Ordering::SeqCst), 3, "an attempt of {seconds} s");
    }
}
