//! Ending an open run whose record no machine of this version follows.
//!
//! The record was written by another version, or was changed. Nothing in it is run; its calls are answered and the run
//! is closed, so that its session can continue.

use std::sync::Arc;

use backstop_event_log::{Claim, EventLog, LogError, RunSummary, RunWriter, Seed};
use backstop_orchestrator::new_run_id;
use layer0::event::{Actor, EventKind, OperatorReturned, RunFailed, RunFinished, ToolResponded};
use layer0::failure::{Failure, chain};
use layer0::id::{CallId, RunId};
use layer0::stop::Outcome;
use layer0::{Code, Timestamp, code};

use crate::error::AgentError;
use crate::resume_error::ResumeError;

/// The answer that the model reads for an open call.
const CANCELLED: &str = "Cancelled: the record of the run cannot be followed any more";

/// Closes an open run as failed, with the reason that keeps it from resuming; a workflow, whose code is elsewhere, as
/// cancelled.
pub(crate) async fn abandon(
    log: &Arc<dyn EventLog>,
    (summary, claim): (RunSummary, Claim),
    why: &ResumeError,
    now: Timestamp,
    AbandonedWork { calls, returned, at }: AbandonedWork,
) -> Result<(), AgentError> {
    // The record may be ahead of the time of day.
    let now = now.max(at);
    let cause = Some(summary.last_seq);
    let is_workflow = matches!(why, ResumeError::OfWorkflow { .. });
    if !is_workflow {
        tracing::warn!(run = %summary.run, error = %why, "an open run is closed, because it cannot go on");
    }
    let seed = Seed::new(new_run_id(now).as_str());
    let mut writer = RunWriter::resume(Arc::clone(log), summary, claim);
    for returned in returned {
        writer.stage(&seed, now, Actor::Runtime, cause, returned.into());
    }
    for (call_id, tool) in calls {
        let answer = ToolResponded::refusal(call_id, tool, code::TOOL_CANCELLED, CANCELLED);
        writer.stage(&seed, now, Actor::Machine, cause, answer.into());
    }
    let usage = writer.summary().usage;
    let end = match is_workflow {
        true => {
            let mut finished = RunFinished::new(Outcome::Cancelled, "", usage);
            finished.reason = Some(Code::new(code::RUN_CANCELLED));
            finished.message = Some("the workflow was cancelled".into());
            finished.into()
        }
        false => RunFailed::new(why.code(), chain(why), usage).into(),
    };
    writer.stage(&seed, now, Actor::Machine, cause, end);
    writer.commit().await?;
    Ok(())
}

/// The open work of a run.
#[derive(Default)]
pub(crate) struct OpenWork {
    /// The calls without an answer, with their tools, in the order of their batch.
    pub(crate) calls: Vec<(CallId, Arc<str>)>,
    /// The dispatches that have not returned: operators and their runs.
    pub(crate) dispatches: Vec<(Arc<str>, RunId)>,
    /// The time of the last readable event.
    pub(crate) at: Timestamp,
}

/// The open work of a run after its child runs have ended.
pub(crate) struct AbandonedWork {
    /// The calls without an answer, with their tools, in the order of their batch.
    pub(crate) calls: Vec<(CallId, Arc<str>)>,
    /// The outcomes of the child runs.
    pub(crate) returned: Vec<OperatorReturned>,
    /// The time of the last readable event.
    pub(crate) at: Timestamp,
}

/// Returns the open work, as far as the record can be read.
pub(crate) async fn open_in(
    log: &dyn EventLog,
    summary: &RunSummary,
) -> Result<OpenWork, LogError> {
    let mut open = OpenWork { at: summary.started_at, ..OpenWork::default() };
    let records = match log.records(&summary.run, 1).await {
        // The store may do better later; the record will not.
        Err(error) if !error.is_retryable() => Vec::new(),
        records => records?,
    };
    for event in records.iter().filter_map(|record| record.decode(&summary.run).ok()) {
        open.at = open.at.max(event.at);
        match event.kind {
            EventKind::ModelResponded(answer) => {
                open.calls.extend(
                    answer.tool_calls.iter().map(|call| (call.id.clone(), Arc::clone(&call.name))),
                );
            }
            EventKind::ToolResponded(answer) => {
                open.calls.retain(|(call, _)| *call != answer.call_id);
            }
            EventKind::OperatorDispatched(dispatched) => {
                open.dispatches.retain(|(_, run)| *run != dispatched.run);
                open.dispatches.push((dispatched.operator, dispatched.run));
            }
            EventKind::OperatorReturned(returned) => {
                open.dispatches.retain(|(_, run)| *run != returned.run);
            }
            _ => {}
        }
    }
    Ok(open)
}
