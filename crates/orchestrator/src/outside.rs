//! What is said to a run from outside, and asked about it: by its id, in whichever process it is.

use backstop_event_log::{EventLog, InboxRequest, LogError, RunSummary};
use layer0::JsonText;
use layer0::error::{OperatorError, OrchError};
use layer0::id::{RunId, WorkflowId};
use layer0::operator::Signal;
use serde_json::{Value, json};

use crate::in_flight::Flight;
use crate::inner::Inner;

/// How many signals wait for an operator before further ones are refused.
const MAX_SIGNALS: usize = 256;
/// How many of its last events a query tells.
const LAST_EVENTS: u64 = 10;
/// How many callers of a run are looked at.
const MAX_CALLERS: usize = 64;
/// Who sends what comes through an orchestrator.
const SENDER: &str = "orchestrator";

pub(crate) async fn signal(
    inner: &Inner,
    workflow: &WorkflowId,
    signal: Signal,
) -> Result<(), OrchError> {
    let run = RunId::new(workflow.as_str());
    if let Some(log) = &inner.log
        && log.summary(&run).await.map_err(unreadable)?.is_some_and(|summary| summary.is_open())
    {
        if log.inbox(&run).await.map_err(unreadable)?.len() >= MAX_SIGNALS {
            return Err(full(&run));
        }
        let request = request(run.clone(), signal);
        let is_sent = log.send(request, SENDER, inner.clock.now()).await.map_err(unreadable)?;
        return if is_sent { Ok(()) } else { Err(unknown(workflow)) };
    }
    let flight = inner.in_flight.find(workflow).ok_or_else(|| unknown(workflow))?;
    if flight.signals.waiting() >= MAX_SIGNALS {
        return Err(full(&run));
    }
    flight.signals.push(signal);
    Ok(())
}

fn request(run: RunId, Signal { name, data, .. }: Signal) -> InboxRequest {
    match (name.as_str(), &data) {
        ("cancel", _) => InboxRequest::Cancel { run },
        ("input", Value::String(text)) => InboxRequest::Input { run, text: text.as_str().into() },
        _ => InboxRequest::Signal { run, name: name.into(), data: JsonText::from(&data) },
    }
}

pub(crate) async fn query(inner: &Inner, workflow: &WorkflowId) -> Result<Value, OrchError> {
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
        (None, Some(Flight { operator, depth, started, .. })) => Ok(json!({
            "run": run,
            "operator": operator,
            "state": "running",
            "depth": depth,
            "started_at": started,
        })),
        (None, None) => Err(unknown(workflow)),
    }
}

/// Tells what the record says of a run.
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

/// Is a run another one, or below it?
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
    OrchError::OperatorError(OperatorError::failed(error))
}
