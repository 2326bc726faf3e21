//! Waits for the deliveries of given runs only.

use std::sync::Arc;
use std::time::Duration;

use backstop_behaviors::{FnBehavior, Start, behavior};
use backstop_clock::{Clock, SystemClock};
use backstop_event_log::{EventLog, RunWriter, Seed};
use backstop_store_sqlite::{Database, Durability};
use layer0::Timestamp;
use layer0::error::OperatorError;
use layer0::event::{Actor, EventKind, OperatorDispatched};

use super::{Seen, host, memory, noting, opened, places, short_while, warn};

/// Much longer than any delivery takes.
const LONG: Duration = Duration::from_secs(20);
/// Long enough for a delivery that is not blocked.
const SHORT: Duration = Duration::from_millis(200);

/// A behaviour that records its events, and never ends with events of `run_stuck`.
fn stuck(name: &str, seen: &Seen) -> FnBehavior {
    let seen = Arc::clone(seen);
    behavior(name, "warning".parse().unwrap(), move |delivery, _| {
        let seen = Arc::clone(&seen);
        async move {
            let is_stuck = delivery.run.as_str() == "run_stuck";
            seen.lock().unwrap().push(delivery);
            if is_stuck {
                std::future::pending::<()>().await;
            }
            Ok(())
        }
    })
}

/// A behaviour on failures that records its events after a while, and then fails.
fn failing_late(name: &str, on: &str, seen: &Seen) -> FnBehavior {
    let seen = Arc::clone(seen);
    behavior(name, on.parse().unwrap(), move |delivery, _| {
        let seen = Arc::clone(&seen);
        async move {
            SystemClock.sleep(Duration::from_millis(50)).await;
            seen.lock().unwrap().push(delivery);
            Err(OperatorError::NonRetryable("the desk is closed".into()).into())
        }
    })
}

async fn logs(folder: &tempfile::TempDir) -> [Arc<dyn EventLog>; 2] {
    let database = Database::open(&folder.path().join("a.db"), Durability::Normal).await.unwrap();
    [memory(), Arc::new(database.log())]
}

/// Spec: X8
#[tokio::test(flavor = "multi_thread")]
async fn deliveries_of_other_runs_are_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    for log in logs(&folder).await {
        let seen = Seen::default();
        let serving = host(&log).behavior(stuck("b", &seen)).build().unwrap().serve();
        opened(&log, &["b"]).await;
        warn(&log, "run_stuck", 1).await;
        while places(&seen).is_empty() {
            short_while().await;
        }
        warn(&log, "run_1", 3).await;
        assert!(serving.settle_runs(&["run_1".into()], LONG).await);
        let own = (1..=3).map(|seq| ("run_1".to_owned(), seq));
        let expected: Vec<_> = [("run_stuck".to_owned(), 1)].into_iter().chain(own).collect();
        assert_eq!(places(&seen), expected);
        assert!(serving.settle_runs(&[], LONG).await);
        assert!(!serving.settle_runs(&["run_stuck".into()], SHORT).await);
        assert!(!serving.settle_runs(&["run_1".into(), "run_stuck".into()], SHORT).await);
        assert!(!serving.settle(SHORT).await);
        serving.stop().await;
    }
}

/// Spec: X8. A subscription that is far behind holds up no run that it is told nothing of.
#[tokio::test(flavor = "multi_thread")]
async fn run_without_deliveries_is_settled_at_once() {
    let folder = tempfile::tempdir().unwrap();
    for log in logs(&folder).await {
        let seen = Seen::default();
        // More events than a backlog has.
        warn(&log, "run_stuck", 1_500).await;
        warn(&log, "run_1", 0).await;
        let late = stuck("b", &seen).start(Start::Start);
        let serving = host(&log).behavior(late).build().unwrap().serve();
        opened(&log, &["b"]).await;
        drop(serving.wait_for_claims().await);
        assert!(serving.settle_runs(&["run_1".into()], LONG).await);
        serving.stop().await;
    }
}

/// Spec: X8. However far it leads.
#[tokio::test(flavor = "multi_thread")]
async fn what_follows_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    for log in logs(&folder).await {
        let (one, two, told) = (Seen::default(), Seen::default(), Seen::default());
        let on_failures = |of: &str| format!("behavior.failed[behavior={of}]");
        // Behaviours on later failures come first.
        let serving = host(&log)
            .behavior(noting("told", &on_failures("three"), &told))
            .behavior(failing_late("three", &on_failures("two"), &two))
            .behavior(failing_late("two", &on_failures("one"), &two))
            .behavior(failing_late("one", "warning", &one))
            .build()
            .unwrap()
            .serve();
        opened(&log, &["told", "three", "two", "one"]).await;
        warn(&log, "run_1", 2).await;
        assert!(serving.settle_runs(&["run_1".into()], LONG).await);
        let count = |seen: &Seen| seen.lock().unwrap().len();
        assert_eq!((count(&one), count(&two), count(&told)), (2, 4, 2));
        // Another run caused it.
        warn(&log, "run_2", 0).await;
        assert!(serving.settle_runs(&["run_2".into()], LONG).await);
        serving.stop().await;
    }
}

/// Spec: X8, O2
#[tokio::test(flavor = "multi_thread")]
async fn runs_below_are_waited_for() {
    let (log, seen) = (memory(), Seen::default());
    let serving = host(&log).behavior(stuck("b", &seen)).build().unwrap().serve();
    opened(&log, &["b"]).await;
    warn(&log, "run_1", 0).await;
    let summary = log.summary(&"run_1".into()).await.unwrap().unwrap();
    let claim = log.claim(&"run_1".into()).await.unwrap();
    let mut writer = RunWriter::resume(Arc::clone(&log), summary, claim);
    let dispatched = OperatorDispatched::new("b", "run_stuck", 1, "", Box::default());
    let dispatched = EventKind::from(dispatched);
    writer.stage(&Seed::new("s"), Timestamp::default(), Actor::Runtime, None, dispatched);
    drop(writer.commit().await.unwrap());
    assert!(serving.settle_runs(&["run_1".into()], LONG).await);
    warn(&log, "run_stuck", 1).await;
    assert!(!serving.settle_runs(&["run_1".into()], SHORT).await);
    serving.stop().await;
}
