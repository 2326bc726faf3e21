//! Signals and queries for a run by its id, in whichever process it is.

use std::sync::Arc;

use backstop_event_log::{EventLog, InboxRequest, LogError, RunSummary, open_root};
use layer0::JsonText;
use layer0::error::{OperatorError, OrchError};
use layer0::failure::Failure;
use layer0::id::{RunId, WorkflowId};
use layer0::operator::{Context, Signal, Task};
use serde_json::{Value, json};

use crate::in_flight::ActiveDispatch;
use crate::inner::OrchestratorInner;

/// Number of signals that may wait for an operator; further ones are refused.
const MAX_SIGNALS: usize = 256;
/// Number of last events in the answer to a query.
const LAST_EVENTS: u64 = 10;
/// Number of callers of a run that are searched.
const MAX_CALLERS: usize = 64;
/// Sender of the messages that come through an orchestrator.
const SENDER: &str = "orchestrator";

pub(crate) async fn signal(
    inner: &OrchestratorInner,
    workflow: &WorkflowId,
    signal: Signal,
) -> Result<(), OrchError> {
    let run = RunId::new(workflow.as_str());
    if let Some(log) = &inner.log
        && let Some(open) = log.summary(&run).await.map_err(unreadable)?.filter(RunSummary::is_open)
    {
        if signal.name == Signal::CANCEL {
            return cancel(inner, log, open).await;
        }
        let is_sent = send(inner, &**log, &run, request(run.clone(), signal)).await?;
        return if is_sent { Ok(()) } else { Err(unknown(workflow)) };
    }
    let flight = inner.in_flight.find(workflow).ok_or_else(|| unknown(workflow))?;
    if flight.signals.waiting() >= MAX_SIGNALS {
        return Err(full(&run));
    }
    flight.signals.push(signal);
    Ok(())
}

/// Stops a run, or the open run at the head of its callers. A run without a process is ended here if its operator is
/// registered.
async fn cancel(
    inner: &OrchestratorInner,
    log: &Arc<dyn EventLog>,
    open: RunSummary,
) -> Result<(), OrchError> {
    let root = match open_root(&**log, &open).await.map_err(unreadable)? {
        Some(root) => {
            tracing::info!(run = %open.run, %root, "stopping the run at the head of its callers");
            log.summary(&root).await.map_err(unreadable)?.unwrap_or(open)
        }
        None => open,
    };
    let request = InboxRequest::Cancel { run: root.run.clone() };
    if !send(inner, &**log, &root.run, request).await? {
        return Err(OrchError::WorkflowNotFound(root.run.to_string()));
    }
    let can_end = inner.operators.get(&*root.agent).is_some_and(|it| it.operator.can_go_on());
    match log.claim(&root.run).await {
        Ok(_free) if can_end => {}
        // The process that runs it takes the request, or the next process that resumes it.
        Ok(_) | Err(LogError::Claimed(_)) => return Ok(()),
        Err(error) => return Err(unreadable(error)),
    }
    let mut context = Context::root();
    (context.run, context.goes_on, context.is_recorded) = (Some(root.run.clone()), true, true);
    context.signals.push(Signal::cancel());
    let task = Task::json(Value::Null);
    let ended = async { inner.begin(&root.agent, task, context)?.join().await };
    if let Err(error) = ended.await {
        // The request stays in the inbox.
        tracing::warn!(run = %root.run, code = error.code(), "the run could not be ended: {error}");
    }
    Ok(())
}

/// Sends a request to a run; returns whether the run was still open.
async fn send(
    inner: &OrchestratorInner,
    log: &dyn EventLog,
    run: &RunId,
    request: InboxRequest,
) -> Result<bool, OrchError> {
    if log.inbox(run).await.map_err(unreadable)?.len() >= MAX_SIGNALS {
        return Err(full(run));
    }
    log.send(request, SENDER, inner.clock.now()).await.map_err(unreadable)
}

fn request(run: RunId, Signal { name, data, cause, .. }: Signal) -> InboxRequest {
    match (name.as_str(), &data) {
        ("input", Value::String(text)) if cause.is_none() => {
            InboxRequest::Input { run, text: text.as_str().into() }
        }
        _ => {
            let data = JsonText::from(&data);
            InboxRequest::Signal { run, name: name.into(), data, cause }
        }
    }
}

pub(crate) async fn query(
    inner: &OrchestratorInner,
    workflow: &WorkflowId,
) -> Result<Value, OrchError> {
    let run = RunId::new(workflow.as_str());
    let flight = inner.in_flight.find(workflow);
    let recorded = match &inner.log {
        Some(log) => match log.summary(&run).await.map_err(unreadable)? {
            Some(summary) => Some(of_record(&**log, &summary).await.map_err(unreadable)?),
            None => None,
        },
        None => None,
    };
    match (recorded, flight) {
        (Some(recorded), _) => Ok(recorded),
        (None, Some(ActiveDispatch { operator, depth, started, .. })) => Ok(json!({
            "run": run,
            "operator": operator,
            "state": "running",
            "depth": depth,
            "started_at": started,
        })),
        (None, None) => Err(unknown(workflow)),
    }
}

/// Returns the state of a run according to its record.
async fn of_record(log: &dyn EventLog, summary: &RunSummary) -> Result<Value, LogError> {
    let first = summary.last_seq.saturating_sub(LAST_EVENTS) + 1;
    let events = log.records(&summary.run, first).await?;
    let events = events
        .iter()
        .map(|record| json!({ "seq": record.seq, "type": record.event_type, "at": record.at }));
    let mut open = Vec::new();
    for approval in log.open_approvals().await? {
        if is_within(log, &approval.run, &summary.run).await? {
            open.push(approval.id);
        }
    }
    Ok(json!({
        "run": summary.run,
        "operator": summary.agent,
        "state": summary.state,
        "outcome": summary.outcome,
        "reason": summary.reason,
        "usage": summary.usage,
        "started_at": summary.started_at,
        "events": events.collect::<Vec<_>>(),
        "approvals": open,
    }))
}

/// Returns whether a run is `head`, or a descendant of `head`.
async fn is_within(log: &dyn EventLog, run: &RunId, head: &RunId) -> Result<bool, LogError> {
    let mut next = Some(run.clone());
    for _ in 0..MAX_CALLERS {
        match next {
            Some(run) if run == *head => return Ok(true),
            Some(run) => next = log.summary(&run).await?.and_then(|summary| summary.parent),
            None => return Ok(false),
        }
    }
    Ok(false)
}

fn unknown(workflow: &WorkflowId) -> OrchError {
    OrchError::WorkflowNotFound(workflow.to_string())
}

fn full(run: &RunId) -> OrchError {
    OrchError::SignalFailed(format!("`{run}` has not taken {MAX_SIGNALS} signals"))
}

fn unreadable(error: LogError) -> OrchError {
    OrchError::OperatorError(OperatorError::from_failure(error))
}
