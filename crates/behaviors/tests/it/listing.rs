//! Lists of failed deliveries, and the reads that they need.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use backstop_behaviors::{FnBehavior, behavior, newest_failures};
use backstop_event_log::*;
use layer0::error::OperatorError;
use layer0::id::RunId;

use super::{host, memory, settled, warn};

/// A log that records the runs whose events are read; `None` for all runs.
struct Noting(Arc<dyn EventLog>, Mutex<Vec<Option<RunId>>>);

impl EventLog for Noting {
    fn ports(&self) -> Ports<'_> {
        self.0.ports().log(self).feed(self)
    }
}

#[async_trait]
impl Log for Noting {
    async fn records(&self, run: &RunId, from: u64) -> Result<Vec<Record>, LogError> {
        self.1.lock().unwrap().push(Some(run.clone()));
        self.0.records(run, from).await
    }
    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, LogError> {
        self.0.summary(run).await
    }
    async fn claim(&self, run: &RunId) -> Result<Claim, LogError> {
        self.0.claim(run).await
    }
    fn claim_new(&self, run: &RunId) -> Claim {
        self.0.claim_new(run)
    }
    async fn append(&self, batch: Batch) -> Result<(), LogError> {
        self.0.append(batch).await
    }
}

#[async_trait]
impl EventFeed for Noting {
    async fn read_feed(&self, filter: &EventFilter, cursor: &Cursor) -> Result<FeedPage, LogError> {
        self.1.lock().unwrap().push(filter.run.clone());
        self.0.read_feed(filter, cursor).await
    }
    fn watch_events(&self) -> EventWatch {
        self.0.watch_events()
    }
}

fn failing(name: &str, on: &str) -> FnBehavior {
    behavior(name, on.parse().unwrap(), |_, _| async {
        Err(OperatorError::NonRetryable("the desk is closed".into()).into())
    })
}

/// Lets the delivery of a run's only warning fail. Each run has its own pattern, and so its own segment.
async fn fail(log: &Arc<dyn EventLog>, name: &str, run: &str) {
    let failing = failing(name, &format!("warning[run={run}]"));
    let serving = host(log).behavior(failing).build().unwrap().serve();
    drop(serving.wait_for_claims().await);
    warn(log, run, 1).await;
    settled(&serving).await;
    serving.stop().await;
}

/// Spec: X3. Across subscriptions and their segments, newest first; no more segments than it takes, and no run.
#[tokio::test(flavor = "multi_thread")]
async fn failures_are_read_from_subscriptions_alone() {
    let log = memory();
    for (name, run) in [("a", "run_1"), ("b", "run_2"), ("a", "run_3"), ("b", "run_4")] {
        fail(&log, name, run).await;
    }
    let all = ["b/run_4/2", "a/run_3/2", "b/run_2/2", "a/run_1/2"];
    let (newest, whole) = (["sub_a.2", "sub_b.2"], ["sub_a.2", "sub_a.1", "sub_b.2", "sub_b.1"]);
    for (limit, segments) in [(0, &[][..]), (1, &newest), (2, &whole), (3, &whole), (20, &whole)] {
        let noting = Noting(Arc::clone(&log), Mutex::default());
        let failures = newest_failures(&noting, limit).await.unwrap();
        let ids: Vec<&str> = failures.iter().map(|failed| failed.id.as_str()).collect();
        assert_eq!(ids, all[..limit.min(4)]);
        let read = noting.1.into_inner().unwrap();
        let read: Vec<&str> = read.iter().map(|run| run.as_ref().unwrap().as_str()).collect();
        assert_eq!(read, segments, "{limit}");
    }
}
