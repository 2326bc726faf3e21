//! Supervised operators: waits between restarts, and deaths during them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use backstop_clock::{Clock, VirtualClock};
use backstop_event_log::MemoryLog;
use backstop_orchestrator::{LocalOrchestrator, Restart, Supervise};
use layer0::event::{Event, EventKind};
use layer0::failure::Failure;

use crate::process::{died, record, resume, run_of};
use crate::workflows::{Failing, dispatch, types, workflow};
use crate::{builder, start};

/// A process in which an operator fails each time, and is restarted four times.
fn watched(clock: &VirtualClock, log: &Arc<MemoryLog>) -> LocalOrchestrator {
    let watched = Supervise::new("watched", "shaky", Restart::Transient).limit(4);
    builder(clock)
        .operator(Failing("shaky", Mutex::new(u32::MAX)))
        .operator(workflow(watched.clock(Arc::new(clock.clone())), clock, log))
        .build()
        .unwrap()
}

fn ends(event: &Event) -> bool {
    matches!(event.kind, EventKind::OperatorReturned(_))
}

/// Spec: O6. A restart that is recorded was waited for before.
#[tokio::test]
async fn resume_repeats_no_wait_before_a_restart() {
    let (clock, log) = (start(), Arc::new(MemoryLog::new()));
    let failed = dispatch(&clock, &watched(&clock, &log), "watched", "x").await.unwrap_err();
    assert_eq!(clock.monotonic(), Duration::from_secs(1 + 2 + 4 + 8));
    let events = record(&log, "watched").await;
    let returned: Vec<u64> = events.iter().filter(|it| ends(it)).map(|event| event.seq).collect();
    assert_eq!(returned.len(), 5);
    for (done, left) in [(1, 1 + 2 + 4 + 8), (3, 4 + 8), (4, 8), (5, 0)] {
        let log = died(&log, "watched", |event| event.seq == returned[done - 1]).await;
        let (began, process) = (clock.monotonic(), watched(&clock, &log));
        let error = resume(&clock, &process, "watched", run_of(&log, "watched").await).await;
        assert_eq!(error.unwrap_err().code(), failed.code());
        let waited = clock.monotonic() - began;
        assert_eq!(waited, Duration::from_secs(left), "{done} runs had ended");
    }
}

/// Spec: D5, O6. The record does not tell a wait of the code from code that ends its process.
#[tokio::test]
async fn three_deaths_in_one_wait_end_a_workflow() {
    let (clock, mut log) = (start(), Arc::new(MemoryLog::new()));
    drop(dispatch(&clock, &watched(&clock, &log), "watched", "x").await);
    // The process dies in the wait before the first restart, and so do two more.
    let mut last = record(&log, "watched").await.iter().find(|it| ends(it)).unwrap().seq;
    for deaths in 1..=3 {
        log = died(&log, "watched", |event| event.seq == last).await;
        let process = watched(&clock, &log);
        let ended = resume(&clock, &process, "watched", run_of(&log, "watched").await).await;
        let events = record(&log, "watched").await;
        let recovered = |it: &Event| it.kind.event_type() == "run.recovered";
        last = events.iter().find(|it| it.seq > last && recovered(it)).unwrap().seq;
        let expected = if deaths < 3 { "operator.non_retryable" } else { "run.crash_loop" };
        assert_eq!(ended.unwrap_err().code(), expected, "{:?}", types(&events));
    }
    // A restart in between is progress.
    let (clock, mut log) = (start(), Arc::new(MemoryLog::new()));
    drop(dispatch(&clock, &watched(&clock, &log), "watched", "x").await);
    for run in 1..=4 {
        let events = record(&log, "watched").await;
        let last = events.iter().filter(|it| ends(it)).nth(run - 1).unwrap().seq;
        log = died(&log, "watched", |event| event.seq == last).await;
        let process = watched(&clock, &log);
        let ended = resume(&clock, &process, "watched", run_of(&log, "watched").await).await;
        assert_eq!(ended.unwrap_err().code(), "operator.non_retryable");
    }
}
