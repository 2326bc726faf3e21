//! Settlements by people of calls of unknown outcome.

use std::sync::Arc;

use backstop_event_log::{Claim, EventLog, InboxMessage, InboxRequest, LogError, Settlement};
use backstop_provider::ScriptedProvider;
use backstop_redact::Redactor;
use layer0::event::{EventKind, ToolResolved};
use layer0::id::{CallId, RunId};

use crate::agent::Agent;
use crate::record::fold::{DefinedAs, Folded, fold};
use crate::resume_error::ResumeError;
use crate::run::resume::Resumed;

/// Settles a call of unknown outcome: it happened, or it did not. A call without an answer gets this answer; an earlier
/// answer stays as it is, and the model reads the settlement at its next call. If another process runs the run, that
/// process takes the settlement from its inbox: it stops a call that is still running and happened. Otherwise the
/// settlement is recorded here, also in a finished run, and nothing of the run is run.
///
/// # Errors
///
/// [`ResumeError::CallNotOpen`] if the outcome of the call is known, or the run made no such call;
/// [`ResumeError::CallRunning`] if the settlement says that a running call did not happen: it may still act;
/// [`ResumeError::CallSettled`] if another settlement of the call was accepted or recorded before;
/// [`ResumeError::Log`] if there is no such run or its record cannot be written; [`ResumeError::Blank`] if `by` is
/// blank; [`ResumeError::Diverged`] if the record cannot be replayed.
///
/// # Cancel safety
///
/// If the future is dropped, the settlement is recorded now, with the next owner of the run, or not at all.
pub async fn resolve(
    log: Arc<dyn EventLog>,
    run: &RunId,
    call: &CallId,
    settlement: Settlement,
) -> Result<(), ResumeError> {
    // This agent only writes a record: it calls no model and runs no tool.
    let settling = Agent::builder(ScriptedProvider::saying([""])).shared_log(log).build();
    let settling = settling.map_err(|error| LogError::Failed(error.into()))?;
    settling.resolve(run, call, settlement).await
}

impl Agent {
    /// Settles a call of unknown outcome, as [`resolve`] does, with this agent's clock and redaction.
    ///
    /// # Errors
    ///
    /// As [`resolve`].
    ///
    /// # Cancel safety
    ///
    /// As [`resolve`].
    pub async fn resolve(
        &self,
        run: &RunId,
        call: &CallId,
        settlement: Settlement,
    ) -> Result<(), ResumeError> {
        let log = self.require_log(run)?;
        if settlement.by.trim().is_empty() {
            return Err(ResumeError::Blank("by"));
        }
        let settlement = redacted_settlement(&self.inner.redactor, settlement);
        let folded = fold(&*log, run, DefinedAs::Recorded, None).await?;
        check_unsettled(&folded, call)?;
        let mut claim = claim_free(&*log, run).await?;
        let is_running = claim.is_none() && folded.replayed.machine.is_running(call);
        if is_running && !settlement.happened {
            return Err(ResumeError::call_running(run.clone(), call.clone()));
        }
        let by = Arc::clone(&settlement.by);
        let request = InboxRequest::Settle { run: run.clone(), call: call.clone(), settlement };
        if !log.send(request, &by, self.inner.clock.now()).await? {
            return Err(ResumeError::call_settled(run.clone(), call.clone()));
        }
        if claim.is_none() {
            // Its owner may have ended without the settlement.
            claim = claim_free(&*log, run).await?;
        }
        let Some(claim) = claim else { return Ok(()) };
        let folded = fold(&*log, run, DefinedAs::Recorded, None).await?;
        let inner = Arc::clone(&self.inner);
        Resumed::open(inner, log, folded, Some(claim), Default::default()).await?;
        Ok(())
    }
}

/// Claims a run; `None` if another process has it.
async fn claim_free(log: &dyn EventLog, run: &RunId) -> Result<Option<Claim>, LogError> {
    match log.claim(run).await {
        Ok(claim) => Ok(Some(claim)),
        Err(LogError::Claimed(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn check_unsettled(folded: &Folded, call: &CallId) -> Result<(), ResumeError> {
    let mut unsettled = folded.replayed.machine.unsettled_calls().map(|(id, _)| id);
    if unsettled.any(|id| id == call) {
        return Ok(());
    }
    let is_settled = folded.events.iter().any(|event| {
        matches!(&event.kind, EventKind::ToolResolved(resolved) if resolved.call_id == *call)
    });
    if is_settled {
        return Err(ResumeError::call_settled(folded.summary.run.clone(), call.clone()));
    }
    let unsettled = folded.replayed.machine.unsettled_calls().map(|(id, _)| id.clone()).collect();
    Err(ResumeError::call_not_open(folded.summary.run.clone(), call.clone(), unsettled))
}

/// Returns the event of a settlement.
pub(crate) fn build_tool_resolved(
    call: CallId,
    tool: &str,
    settlement: Settlement,
) -> ToolResolved {
    let verdict = settlement.verdict();
    let Settlement { by, happened, output, .. } = settlement;
    let text = match (happened, &output) {
        (true, Some(output)) => {
            format!(
                "{by} says that call `{call}` of `{tool}` happened. It answered: {}",
                output.display_text()
            )
        }
        (true, None) => format!("{by} says that call `{call}` of `{tool}` happened."),
        (false, _) => {
            format!(
                "{by} says that call `{call}` of `{tool}` did not happen; it may be called again."
            )
        }
    };
    ToolResolved::new(call, by, verdict, output, text)
}

/// Returns the call of a settlement, and the settlement.
pub(crate) fn read_settlement(row: InboxMessage) -> Option<(CallId, Settlement)> {
    match row.request {
        InboxRequest::Settle { call, settlement, .. } => Some((call, settlement)),
        _ => None,
    }
}

/// Removes secrets from a person's settlement, for the record.
#[must_use]
pub fn redacted_settlement(redactor: &Redactor, mut settlement: Settlement) -> Settlement {
    settlement.by = redactor.redact(&settlement.by).into();
    settlement.output = settlement.output.map(|output| redactor.redact_held_json(output));
    settlement
}
