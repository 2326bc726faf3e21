//! Runs whose task at the worker panics.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{Clock, SystemClock};
use backstop_event_log::RunState;
use backstop_store_postgres::QueueLimit;
use backstop_worker::{RunChange, Worker, WorkerReport};
use layer0::Operator;
use layer0::error::OperatorError;
use layer0::operator::{Answer, Context, Task};

use crate::place::{Place, direct_and_pooled_checks};
use crate::support::{AtWork, answering, asking, is_in, put};

direct_and_pooled_checks![run_whose_task_panicked_is_given_back];

/// An operator whose first error cannot be put into words.
struct Unspeakable(AtomicU32);

#[derive(Debug)]
struct Panicking;

impl fmt::Display for Panicking {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("no words");
    }
}

impl std::error::Error for Panicking {}

#[async_trait]
impl Operator for Unspeakable {
    fn name(&self) -> &str {
        "unspeakable"
    }

    fn can_go_on(&self) -> bool {
        true
    }

    fn digest(&self) -> Option<std::sync::Arc<str>> {
        Some("digest".into())
    }

    async fn run(&self, _: Task, _: &Context) -> Result<Answer, OperatorError> {
        match self.0.fetch_add(1, Ordering::SeqCst) {
            0 => Err(OperatorError::Other(Box::new(Panicking))),
            _ => Err(OperatorError::NonRetryable("in words".to_owned())),
        }
    }
}

/// Spec: J2w. It keeps no place in its queue or in the process, and is taken again.
async fn run_whose_task_panicked_is_given_back(place: Place) {
    let (database, _) = place.fresh().await;
    let worker = Worker::builder(&database)
        .operator(Unspeakable(AtomicU32::new(0)))
        .operator(answering(&database, "agent"))
        .queue(QueueLimit::new("default").limit(1))
        .concurrency(1);
    let (worker, mut reports) = AtWork::subscribe(worker);
    let run = put(&database, &asking("unspeakable")).await;
    let mut told = Vec::new();
    while told.len() < 4 {
        let report = tokio::select! {
            report = reports.recv() => report.unwrap(),
            () = SystemClock.sleep(Duration::from_secs(30)) => panic!("nothing more after {told:?}"),
        };
        match report {
            WorkerReport::Run(RunChange::PutOff { code, message, .. }) => {
                told.push(format!("put off: {code}: {message}"));
            }
            WorkerReport::Run(RunChange::Begun { run: begun, .. }) if begun == run => {
                told.push("begun".to_owned());
            }
            WorkerReport::Run(RunChange::Refused { message, .. }) => told.push(message),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(told[..3], ["begun", "put off: orch.panicked: no words", "begun"]);
    assert!(told[3].contains("in words"), "{told:?}");
    let beside = put(&database, &asking("agent")).await;
    is_in(&database, &beside, RunState::Finished).await;
    worker.stop().await;
}
