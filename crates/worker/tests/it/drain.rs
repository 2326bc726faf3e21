//! Stops of a worker.

use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::{RunState, read_events};
use backstop_worker::{RunChange, Worker, WorkerReport};
use layer0::event::EventKind;

use crate::place::{Place, direct_and_pooled_checks};
use crate::support::{AtWork, Gate, asking, calling, is_in, open, put, summary};

direct_and_pooled_checks![open_tool_is_waited_for, tool_is_not_waited_for_without_end,];

/// Spec: J2w. A tool that is open is waited for, and not called again.
async fn open_tool_is_waited_for(place: Place) {
    let (database, url) = place.fresh().await;
    let run = put(&database, &asking("agent")).await;
    let gate = Gate::new();
    let first = open(&url).await;
    let worker = AtWork::start(Worker::builder(&first).operator(calling(&first, gate.again())));
    gate.has_begun(1).await;
    let stopping = tokio::spawn(worker.stop());
    SystemClock.sleep(Duration::from_millis(500)).await;
    assert!(!stopping.is_finished(), "it waits for the tool");
    gate.open.add_permits(1);
    let end = stopping.await.unwrap();
    assert!(end.at_rest && end.left == 0, "{end:?}");
    let open_run = summary(&database, &run).await.unwrap();
    assert_eq!(open_run.state, RunState::Running, "it has no terminal event");

    let second = open(&url).await;
    let worker = AtWork::start(Worker::builder(&second).operator(calling(&second, gate.again())));
    is_in(&database, &run, RunState::Finished).await;
    worker.stop().await;
    assert_eq!(gate.begun.available_permits(), 0, "the tool was called once");
    let (_, events) = read_events(&database.log(), &run).await.unwrap();
    let answered = events.iter().filter(|event| match &event.kind {
        EventKind::ToolResponded(answer) => answer.ok,
        _ => false,
    });
    assert_eq!(answered.count(), 1);
}

/// Spec: J2w. A tool that takes too long counts as interrupted.
async fn tool_is_not_waited_for_without_end(place: Place) {
    let (database, url) = place.fresh().await;
    let run = put(&database, &asking("agent")).await;
    let gate = Gate::new();
    let first = open(&url).await;
    let builder = Worker::builder(&first).operator(calling(&first, gate.again()));
    let (worker, mut reports) = AtWork::subscribe(builder.drain(Duration::from_millis(300)));
    gate.has_begun(1).await;
    let end = worker.stop().await;
    assert!(!end.at_rest && end.left == 0, "{end:?}");
    let last = std::iter::from_fn(|| reports.try_recv().ok()).last().unwrap();
    let WorkerReport::Run(RunChange::Left { run: left, state, .. }) = last else {
        panic!("{last:?}")
    };
    assert_eq!((left, state), (run.clone(), RunState::Running));
    let second = open(&url).await;
    let worker = AtWork::start(Worker::builder(&second).operator(calling(&second, gate.again())));
    is_in(&database, &run, RunState::Finished).await;
    worker.stop().await;
    let (_, events) = read_events(&database.log(), &run).await.unwrap();
    let interrupted = events.iter().any(|event| match &event.kind {
        EventKind::ToolResponded(answer) => {
            answer.error.as_ref().is_some_and(|error| error.reason.as_str() == "tool.interrupted")
        }
        _ => false,
    });
    assert!(interrupted, "{events:?}");
}
