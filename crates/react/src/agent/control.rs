//! Control of a run from outside: cancellation, input for its model, decisions of approvals.

use std::sync::Arc;

use backstop_event_log::{
    Decision, EventLog, InboxRequest, LogError, OpenApproval, current_agent, open_root,
};
use backstop_provider::ScriptedProvider;
use layer0::id::{ApprovalId, RunId};
use layer0::{JsonText, Timestamp, ToolSpec};
use serde::Deserialize;

use crate::agent::Agent;
use crate::decide_error::{ApprovalNotFound, DecideError, check_arguments, check_sent_data};
use crate::error::AgentError;
use crate::record::recordable::redacted_decision;
use crate::resume_error::ResumeError;
use crate::run::session::{EndOptions, end};

/// Stops an open run in any process: steps in flight are dropped, every open call is answered, and the run ends as
/// cancelled. A run without a process is ended here, without further calls, and all its child runs end with it. Returns
/// `false`, and changes nothing, if the run is over.
///
/// If the run was dispatched by an open run, the root of its callers is stopped instead: the run that [`open_root`]
/// returns.
///
/// # Errors
///
/// [`ResumeError::Log`] if there is no such run or its record cannot be written; [`ResumeError::Blank`] if `by` is
/// blank.
///
/// # Cancel safety
///
/// If the future is dropped, the run is stopped by its next owner, or not at all.
pub async fn cancel(log: Arc<dyn EventLog>, run: &RunId, by: &str) -> Result<bool, ResumeError> {
    // This agent only ends the run: it calls no model and runs no tool.
    let closing = Agent::builder(ScriptedProvider::saying([""])).shared_log(log).build();
    let closing = closing.map_err(|error| LogError::Failed(error.into()))?;
    closing.cancel(run, by).await
}

impl Agent {
    /// Stops an open run, as [`cancel`] does, with this agent's clock and redaction.
    ///
    /// # Errors
    ///
    /// As [`cancel`].
    ///
    /// # Cancel safety
    ///
    /// As [`cancel`].
    pub async fn cancel(&self, run: &RunId, by: &str) -> Result<bool, ResumeError> {
        let log = self.require_log(run)?;
        let Some(summary) = log.summary(run).await? else {
            return Err(LogError::NotFound(run.clone()).into());
        };
        if by.trim().is_empty() {
            return Err(ResumeError::Blank("by"));
        }
        let summary = match open_root(&*log, &summary).await? {
            Some(root) => {
                tracing::info!(%run, %root, "stopping the run at the head of its callers");
                log.summary(&root).await?.ok_or(LogError::NotFound(root))?
            }
            None => summary,
        };
        let run = &summary.run;
        let by = self.inner.redactor.redact(by);
        let request = InboxRequest::Cancel { run: run.clone() };
        if !log.send(request, &by, self.inner.clock.now()).await? {
            return Ok(false);
        }
        let claim = match log.claim(run).await {
            Ok(claim) => claim,
            // Its owner receives the request.
            Err(LogError::Claimed(_)) => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        let ending = EndOptions::from(log.inbox(run).await?);
        match end(Arc::clone(&self.inner), &log, &summary, claim, ending).await {
            Ok(()) => Ok(true),
            Err(AgentError::Storage(error)) => Err(error.into()),
            Err(error) => Err(LogError::Failed(error.into()).into()),
        }
    }

    /// Sends input to the model of an open run, for its next call. Returns `false`, and changes nothing, if the run is
    /// over.
    ///
    /// # Errors
    ///
    /// [`ResumeError::Log`] if there is no such run or the log cannot be written; [`ResumeError::Blank`] if the text or
    /// the name is blank.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the text was accepted or not.
    pub async fn send_input(
        &self,
        run: &RunId,
        by: &str,
        text: impl Into<Arc<str>>,
    ) -> Result<bool, ResumeError> {
        let log = self.require_log(run)?;
        if log.summary(run).await?.is_none() {
            return Err(LogError::NotFound(run.clone()).into());
        }
        let (text, redactor) = (text.into(), &self.inner.redactor);
        for (what, given) in [("by", by), ("text", &*text)] {
            if given.trim().is_empty() {
                return Err(ResumeError::Blank(what));
            }
        }
        let text = redactor.redact_held(&text).into();
        let request = InboxRequest::Input { run: run.clone(), text };
        Ok(log.send(request, &redactor.redact(by), self.inner.clock.now()).await?)
    }

    /// Approves a call that waits for a person, in whichever process its run is. A run without a process continues with
    /// [`Agent::resume`].
    ///
    /// # Errors
    ///
    /// As [`decide`].
    ///
    /// # Cancel safety
    ///
    /// As [`decide`].
    pub async fn approve(&self, id: &ApprovalId, by: &str) -> Result<(), DecideError> {
        self.decide(id, Decision::approve(by)).await
    }

    /// Denies a call that waits for a person; the model reads the reason.
    ///
    /// # Errors
    ///
    /// As [`decide`].
    ///
    /// # Cancel safety
    ///
    /// As [`decide`].
    pub async fn deny(&self, id: &ApprovalId, by: &str, reason: &str) -> Result<(), DecideError> {
        self.decide(id, Decision::deny(by, reason)).await
    }

    /// Decides an approval, as [`decide`] does, with this agent's clock and redaction. An approval may change the
    /// arguments of the call.
    ///
    /// # Errors
    ///
    /// As [`decide`].
    ///
    /// # Cancel safety
    ///
    /// As [`decide`].
    pub async fn decide(&self, id: &ApprovalId, decision: Decision) -> Result<(), DecideError> {
        let log = self.inner.log.as_ref().ok_or_else(|| ApprovalNotFound::new(id.clone()))?;
        let decision = redacted_decision(&self.inner.redactor, decision)?;
        decide(&**log, id, decision, self.inner.clock.now()).await
    }
}

/// Decides an approval, in whichever process its run is. Changed arguments are checked against the recorded schema of
/// the tool; the capabilities that they need are checked against the policy when the run continues.
///
/// A process without the agent takes the time from a clock:
///
/// ```
/// use backstop_clock::{Clock, SystemClock};
/// use backstop_event_log::{Decision, MemoryLog};
/// use backstop_react::decide;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let log = MemoryLog::new(); // that of a database
/// let decision = Decision::approve("ada");
/// let refused = decide(&log, &"apr_1".into(), decision, SystemClock.now()).await.unwrap_err();
/// assert_eq!(refused.to_string(), "the decision was not accepted");
/// # }
/// ```
///
/// # Errors
///
/// [`DecideError::NotFound`] if no such approval is open: there was none, or it was decided before;
/// [`DecideError::Expired`] if it has expired; [`DecideError::NotApprover`] if this person may not decide it;
/// [`DecideError::Arguments`] for arguments that do not fit the tool; [`DecideError::Data`] for data that does not fit
/// the approval's schema, or is missing; [`DecideError::UnaskedData`] for data without a schema; [`DecideError::Blank`]
/// if the decision names nobody; [`DecideError::Log`] if the log cannot be read or written.
///
/// # Cancel safety
///
/// If the future is dropped, the decision was accepted or not.
pub async fn decide(
    log: &dyn EventLog,
    id: &ApprovalId,
    decision: Decision,
    at: Timestamp,
) -> Result<(), DecideError> {
    if let Some(what) = decision.blank() {
        return Err(DecideError::Blank(what));
    }
    let open = log.open_approvals().await?.into_iter().find(|open| open.id == *id);
    if let Some(open) = open {
        check_sent_data(open.schema.as_ref(), &decision)?;
        if open.message.is_some() && decision.arguments.is_some() {
            return Err(DecideError::running());
        }
        if let Some(arguments) = &decision.arguments
            && let Some(schema) = recorded_schema(log, &open).await?
        {
            check_arguments(&schema, arguments)?;
        }
    }
    match log.decide(id, decision, at).await? {
        true => Ok(()),
        false => Err(ApprovalNotFound::new(id.clone()).into()),
    }
}

/// Returns the recorded schema of a call's arguments; `None` if there is none. The arguments are checked at admission
/// then.
async fn recorded_schema(
    log: &dyn EventLog,
    open: &OpenApproval,
) -> Result<Option<JsonText>, LogError> {
    #[derive(Deserialize)]
    struct ToolContracts {
        tools: Vec<ToolSpec>,
    }
    let mut records = log.records(&open.run, 1).await?;
    records.retain(|record| matches!(&*record.event_type, "run.started" | "run.resumed"));
    let events = records.iter().map(|record| record.decode(&open.run));
    let Ok(events) = events.collect::<Result<Vec<_>, _>>() else { return Ok(None) };
    let Some(agent) = current_agent(&events) else { return Ok(None) };
    let Ok(ToolContracts { tools }) = agent.definition.read() else { return Ok(None) };
    let tool = tools.into_iter().find(|spec| spec.name == open.tool);
    Ok(tool.map(|spec| spec.schema.clone()))
}
