//! The runs of a tree, for `--json`.

use std::sync::Arc;

use backstop_event_log::{EventLog, LogError, RunState, RunSummary, read_events};
use layer0::Code;
use layer0::code;
use layer0::event::{Event, EventKind};
use layer0::id::RunId;
use layer0::stop::Outcome;

use crate::report::{ReportedRun, RunReport};

/// Lists the runs of a tree in depth-first order: the reported run, then its child runs in the order of their dispatch,
/// each followed by its own child runs. A child run that was refused before it started is left out.
///
/// # Errors
///
/// Any variant of [`LogError`].
///
/// # Cancel safety
///
/// Dropping the future changes nothing.
pub async fn session_runs(
    log: &dyn EventLog,
    root: &RunReport,
) -> Result<Vec<ReportedRun>, LogError> {
    let operator = match root.events.first().map(|event| &event.kind) {
        Some(EventKind::RunStarted(started)) => Arc::clone(&started.agent.name),
        _ => Arc::default(),
    };
    let mut runs = vec![ReportedRun {
        run: root.run.clone(),
        operator,
        parent: None,
        outcome: Some(root.outcome),
        reason: root.reason.clone(),
        usage: root.usage,
        events: Vec::new(),
        requests: Vec::new(),
    }];
    let mut next = list_child_runs(&root.run, &root.events);
    while let Some((parent, run, returned)) = next.pop() {
        let (summary, events) = match read_events(log, &run).await {
            Ok((summary, events)) => (summary, events),
            Err(LogError::NotFound(_)) => continue,
            Err(error) => return Err(error),
        };
        // The events of a fork also name the child runs of its origin.
        if summary.parent.as_ref() != Some(&parent) {
            continue;
        }
        next.extend(list_child_runs(&run, &events));
        let (outcome, reason) = read_end(&summary).or(returned).unzip();
        runs.push(ReportedRun {
            run,
            operator: Arc::clone(&summary.agent),
            parent: Some(parent),
            outcome,
            reason: reason.flatten(),
            usage: summary.usage,
            events,
            requests: Vec::new(),
        });
    }
    Ok(runs)
}

type End = (Outcome, Option<Code>);

/// Returns the child runs of a run, last first, each with its end.
fn list_child_runs(caller: &RunId, events: &[Event]) -> Vec<(RunId, RunId, Option<End>)> {
    let mut runs: Vec<(RunId, RunId, Option<End>)> = Vec::new();
    for event in events {
        match &event.kind {
            EventKind::OperatorDispatched(dispatched)
                if !runs.iter().any(|(_, run, _)| *run == dispatched.run) =>
            {
                runs.push((caller.clone(), dispatched.run.clone(), None));
            }
            EventKind::OperatorReturned(returned) => {
                let known = runs.iter_mut().find(|(_, run, _)| *run == returned.run);
                if let Some((_, _, end)) = known {
                    *end = Some((returned.outcome, returned.reason.clone()));
                }
            }
            _ => {}
        }
    }
    runs.reverse();
    runs
}

/// Returns the end of a run according to its record.
fn read_end(run: &RunSummary) -> Option<End> {
    match run.state {
        RunState::WaitingApproval => {
            Some((Outcome::WaitingApproval, Some(Code::new(code::RUN_WAITING_APPROVAL))))
        }
        _ => Some((run.outcome?, run.reason.clone())),
    }
}
