//! What comes to a run from outside: stopping it, saying something to its model, deciding approvals.

use std::sync::Arc;

use backstop_event_log::{
    Decision, EventLog, InboxRequest, LogError, OpenApproval, agent_of, open_root,
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
use crate::run::session::{Ending, end};

/// Stops an open run, whichever process runs it: what is in flight is dropped, every open call is
/// answered, and the run ends as cancelled. A run that no process runs is ended here; nothing of it is
/// run again, and every run below it ends with it. Returns `false`, and changes nothing, when the run is over.
///
/// Of a run that was dispatched by one that is open, the run at the head of its callers is stopped:
/// [`open_root`] tells which that is.
///
/// # Errors
///
/// [`ResumeError::Log`] when there is no such run or its record cannot be written;
/// [`ResumeError::Blank`] when nothing says who stops it.
///
/// # Cancel safety
///
/// If the future is dropped, the run is stopped by its next owner, or not at all.
pub async fn cancel(log: Arc<dyn EventLog>, run: &RunId, by: &str) -> Result<bool, ResumeError> {
    // It only ends a run: no model is asked, no tool runs.
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
        let log = self.log_of(run)?;
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
            // Its owner hears of it.
            Err(LogError::Claimed(_)) => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        let ending = Ending::from(log.inbox(run).await?);
        match end(Arc::clone(&self.inner), &log, &summary, claim, ending).await {
            Ok(()) => Ok(true),
            Err(AgentError::Storage(error)) => Err(error.into()),
            Err(error) => Err(LogError::Failed(error.into()).into()),
        }
    }

    /// Says something to the model of an open run, before it is asked next. Returns `false`, and
    /// changes nothing, when the run is over.
    ///
    /// # Errors
    ///
    /// [`ResumeError::Log`] when there is no such run or the log cannot be written;
    /// [`ResumeError::Blank`] for a text or a name that says nothing.
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
        let log = self.log_of(run)?;
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

    /// Lets a call run that waits for a person, whichever process runs its run. A run that no process
    /// runs goes on with [`Agent::resume`].
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

    /// Keeps a call from running that waits for a person; the model reads the reason.
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

    /// Decides an approval, as [`decide`] does, with this agent's clock and redaction: a call that is let
    /// run may get other arguments.
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

/// Decides an approval, whichever process runs its run. Other arguments than those that were shown are
/// held against the schema that the tool had when its run began; what they need is asked of the policy
/// when the run goes on.
///
/// # Errors
///
/// [`DecideError::NotFound`] when no such approval is open: it never was, or it was decided before;
/// [`DecideError::Expired`] when it was not decided in time; [`DecideError::NotApprover`] when this is not
/// one of those who may; [`DecideError::Arguments`] for arguments that do not fit the tool;
/// [`DecideError::Data`] for data that does not fit what the approval asks for, or is missing;
/// [`DecideError::UnaskedData`] where it asks for none;
/// [`DecideError::Blank`] when nothing says who decides; [`DecideError::Log`] when the log cannot be read or
/// written.
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

/// Returns the schema that the arguments of a call have to fit; `None` where nothing says it. Then admission
/// does.
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
    let Some(agent) = agent_of(&events) else { return Ok(None) };
    let Ok(ToolContracts { tools }) = agent.definition.read() else { return Ok(None) };
    let tool = tools.into_iter().find(|spec| spec.name == open.tool);
    Ok(tool.map(|spec| spec.schema.clone()))
}
