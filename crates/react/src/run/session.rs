//! Sessions: the run that one follows, and runs that died in the middle of one.

use std::sync::Arc;

use backstop_event_log::{Claim, EventLog, InboxMessage, LogError, RunState, RunSummary};
use backstop_react_machine::{CANCEL, Dispatch};
use layer0::event::{EventKind, Follows, OperatorReturned, RunResumed, SignalReceived};
use layer0::id::RunId;
use layer0::stop::Outcome;
use layer0::{Code, code};
use serde_json::{Value, json};

use super::resume::Resumed;
use super::start::Start;
use crate::abandon::abandon;
use crate::error::AgentError;
use crate::fold::fold;
use crate::history::RequestError;
use crate::inner::Inner;
use crate::resume_error::ResumeError;

impl Start {
    /// Finds the run that this one follows in its session; it costs the same however long the session
    /// is. A run of it that died is ended first, so that every call has its answer.
    pub(super) async fn join_session(&self) -> Result<Option<Follows>, AgentError> {
        let Some(log) = self.agent.log.clone() else { return Ok(None) };
        if self.request.session.is_none() || self.request.parent.is_some() {
            return Ok(None);
        }
        let Some(mut last) = log.last_root(&self.session).await? else { return Ok(None) };
        if !self.request.history.messages().is_empty() {
            return Err(RequestError::history_in_session(self.session.clone(), last.run).into());
        }
        if last.is_open() {
            // Rare, and large: every run would keep room for it.
            Box::pin(self.end_dead_run(&log, &last)).await?;
            last = log.summary(&last.run).await?.unwrap_or(last);
        }
        Ok(Some(Follows::new(last.run, last.last_seq, last.head, last.messages)))
    }

    /// Ends an open run whose process died; one that lives, or waits for a person, keeps the session
    /// busy.
    async fn end_dead_run(
        &self,
        log: &Arc<dyn EventLog>,
        run: &RunSummary,
    ) -> Result<(), AgentError> {
        let busy = || LogError::session_busy(self.session.clone(), run.run.clone());
        if run.state == RunState::WaitingApproval {
            return Err(busy().into());
        }
        let claim = match log.claim(&run.run).await {
            Ok(claim) => claim,
            Err(LogError::Claimed(_)) => return Err(busy().into()),
            Err(error) => return Err(error.into()),
        };
        end(Arc::clone(&self.agent), log, run, claim, Ending::default()).await
    }
}

/// How an open run without an owner is ended.
#[derive(Default)]
pub(crate) struct Ending {
    /// Who wants it to end.
    by: Option<Arc<str>>,
    /// The row of the inbox that asks for it.
    row: Option<u64>,
    /// Is it ended though it waits for a person?
    though_waiting: bool,
}

impl Ending {
    /// Ends a run whose caller has given it up.
    pub(crate) fn left_behind() -> Self {
        Self { though_waiting: true, ..Self::default() }
    }
}

/// Ends a run because a message asks for it.
impl From<&InboxMessage> for Ending {
    fn from(message: &InboxMessage) -> Self {
        let by = Some(Arc::clone(&message.by));
        Self { by, row: Some(message.id), though_waiting: true }
    }
}

/// Ends an open run that has no owner any more: nothing is run again, every open call is answered.
/// One that waits for a person stays as it is, unless it is to end all the same.
pub(crate) async fn end(
    agent: Arc<Inner>,
    log: &Arc<dyn EventLog>,
    run: &RunSummary,
    claim: Claim,
    ending: Ending,
) -> Result<(), AgentError> {
    let folded = match fold(&**log, &run.run, None, None).await {
        Ok(folded) => folded,
        // The store may do better later; the record will not.
        Err(ResumeError::Log(error)) if error.is_retryable() => return Err(error.into()),
        Err(why) => {
            let current = match log.summary(&run.run).await {
                // What its row says cannot be read; what is left of it has to do.
                Err(error) if !error.is_retryable() => Some(run.clone()),
                current => current?,
            };
            let Some(current) = current.filter(RunSummary::is_open) else { return Ok(()) };
            return abandon(log, current, claim, &why, agent.clock.now()).await;
        }
    };
    if !folded.summary.is_open() {
        // It ended in the meantime.
        return Ok(());
    }
    let machine = &folded.replayed.machine;
    if machine.is_waiting() && !ending.though_waiting {
        return Err(LogError::session_busy(folded.summary.session, folded.summary.run).into());
    }
    let by = ending.by;
    let first = if machine.is_waiting() {
        EventKind::from(RunResumed::new(by.clone().unwrap_or_else(|| "backstop".into())))
    } else {
        let mut lost = machine.lost();
        lost.interrupted = [lost.rerun, lost.probing, lost.interrupted].concat();
        (lost.rerun, lost.probing) = (Vec::new(), Vec::new());
        lost.into()
    };
    let data = by.map_or(Value::Null, |by| json!({ "by": &*by }));
    let cancel = SignalReceived::new(CANCEL, data);
    let mut resumed =
        Resumed::new(agent, Arc::clone(log), folded, Some(claim), Default::default()).await;
    if let Some(row) = ending.row {
        resumed.take_row(row);
    }
    match Box::pin(resumed.go_on(vec![first, cancel.into()])).await {
        Ok(_) => Ok(()),
        Err(failure) => Err(failure.error),
    }
}

/// Returns what became of a run below another one that a process left behind when it died: it is ended
/// where it is, and what its record says it used counts.
pub(super) async fn dead_dispatch(
    agent: &Arc<Inner>,
    log: &Arc<dyn EventLog>,
    dispatch: &Dispatch,
) -> Result<EventKind, AgentError> {
    close_dead(agent, log, &dispatch.run).await?;
    let summary = log.summary(&dispatch.run).await?;
    let interrupted = (Outcome::Failed, Some(Code::new(code::TOOL_INTERRUPTED)));
    let (outcome, reason) = match &summary {
        Some(summary) if !summary.is_open() => {
            (summary.outcome.unwrap_or(Outcome::Failed), summary.reason.clone())
        }
        _ => interrupted,
    };
    let usage = summary.map(|summary| summary.usage).unwrap_or_default();
    let (operator, run) = (Arc::clone(&dispatch.operator), dispatch.run.clone());
    Ok(OperatorReturned::new(operator, run, outcome, reason, usage).into())
}

/// Closes the record of a run that was left open: every open call is answered, and what it dispatched
/// itself is closed too.
async fn close_dead(
    agent: &Arc<Inner>,
    log: &Arc<dyn EventLog>,
    run: &RunId,
) -> Result<(), AgentError> {
    let Some(summary) = log.summary(run).await?.filter(RunSummary::is_open) else { return Ok(()) };
    let claim = match log.claim(run).await {
        Ok(claim) => claim,
        Err(error @ LogError::Claimed(_)) => {
            tracing::warn!(%run, %error, "a run that was dispatched is not ended with its caller");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    // It may have a run below it, which is ended in the same way.
    let ended = Box::pin(end(Arc::clone(agent), log, &summary, claim, Ending::left_behind()));
    match ended.await {
        Err(AgentError::Storage(error)) => Err(error.into()),
        // It is over, however it ended.
        Ok(()) | Err(_) => Ok(()),
    }
}

impl From<ResumeError> for AgentError {
    fn from(error: ResumeError) -> Self {
        match error {
            ResumeError::Log(error) => Self::Storage(error),
            other => Self::Internal(other.into()),
        }
    }
}
