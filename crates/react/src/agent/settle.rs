//! Calls of unknown outcome, and what people say of them.

use std::sync::Arc;

use backstop_event_log::{EventLog, InboxMessage, InboxRequest, LogError, Settlement};
use backstop_provider::ScriptedProvider;
use backstop_redact::Redactor;
use layer0::event::ToolResolved;
use layer0::id::{CallId, RunId};

use crate::agent::Agent;
use crate::record::fold::{DefinedAs, Folded, fold};
use crate::resume_error::ResumeError;
use crate::run::resume::Resumed;

/// Says what became of a call whose outcome is unknown: that it happened, or that it did not. A call that
/// has no answer yet is answered so; an answer that was given stays as it is, and the model is told when it
/// is asked next. A run that another process runs takes the settlement from its inbox; otherwise it is
/// recorded here, also in a run that is over, and nothing of the run is run.
///
/// # Errors
///
/// [`ResumeError::CallNotOpen`] when the outcome of the call is known, or the run made no such call;
/// [`ResumeError::Log`] when there is no such run or its record cannot be written;
/// [`ResumeError::Blank`] when nothing says who settles it; [`ResumeError::Diverged`] when the record cannot
/// be followed.
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
    // It only writes a record: no model is asked, no tool runs.
    let settling = Agent::builder(ScriptedProvider::saying([""])).shared_log(log).build();
    let settling = settling.map_err(|error| LogError::Failed(error.into()))?;
    settling.resolve(run, call, settlement).await
}

impl Agent {
    /// Says what became of a call whose outcome is unknown, as [`resolve`] does, with this agent's clock and
    /// redaction.
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
        let log = self.log_of(run)?;
        if settlement.by.trim().is_empty() {
            return Err(ResumeError::Blank("by"));
        }
        let settlement = redacted_settlement(&self.inner.redactor, settlement);
        let folded = fold(&*log, run, DefinedAs::Recorded, None).await?;
        check_unsettled(&folded, call)?;
        let by = Arc::clone(&settlement.by);
        let request = InboxRequest::Settle { run: run.clone(), call: call.clone(), settlement };
        if !log.send(request, &by, self.inner.clock.now()).await? {
            return Err(ResumeError::call_not_open(run.clone(), call.clone(), Vec::new()));
        }
        let claim = match log.claim(run).await {
            Ok(claim) => claim,
            // Its owner hears of it.
            Err(LogError::Claimed(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let folded = fold(&*log, run, DefinedAs::Recorded, None).await?;
        let rows = log.inbox(run).await?;
        let inner = Arc::clone(&self.inner);
        let mut resumed = Resumed::new(inner, log, folded, Some(claim), Default::default()).await;
        resumed.settle(rows).await
    }
}

fn check_unsettled(folded: &Folded, call: &CallId) -> Result<(), ResumeError> {
    let mut unsettled = folded.replayed.machine.unsettled().map(|(id, _)| id);
    if unsettled.any(|id| id == call) {
        return Ok(());
    }
    let unsettled = folded.replayed.machine.unsettled().map(|(id, _)| id.clone()).collect();
    Err(ResumeError::call_not_open(folded.summary.run.clone(), call.clone(), unsettled))
}

/// Returns what a settlement adds to the record.
pub(crate) fn resolved(call: CallId, tool: &str, settlement: Settlement) -> ToolResolved {
    let verdict = settlement.verdict();
    let Settlement { by, happened, output, .. } = settlement;
    let text = match (happened, &output) {
        (true, Some(output)) => {
            format!(
                "{by} says that call `{call}` of `{tool}` happened. It answered: {}",
                output.shown()
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

/// Returns the call of a settlement, and what is said of it.
pub(crate) fn settlement_of(row: InboxMessage) -> Option<(CallId, Settlement)> {
    match row.request {
        InboxRequest::Settle { call, settlement, .. } => Some((call, settlement)),
        _ => None,
    }
}

/// Takes secrets out of what a person said of a call, as the record has to hold it.
#[must_use]
pub fn redacted_settlement(redactor: &Redactor, mut settlement: Settlement) -> Settlement {
    settlement.by = redactor.redact(&settlement.by).into();
    settlement.output = settlement.output.map(|output| redactor.redact_held_json(output));
    settlement
}
