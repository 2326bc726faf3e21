//! Conversations: what was said before, and runs that died in the middle of one.

use std::sync::Arc;
use std::time::Duration;

use event_log::{EventLog, LogError, RunFilter, RunState, RunSummary};
use layer0::event::{EventKind, SignalReceived};
use layer0::message::Message;
use react_machine::{CANCEL, Replayed};
use serde_json::Value;

use crate::driver::Driver;
use crate::error::AgentError;
use crate::folding::{Conversation, Folded, conversation, fold};
use crate::resume::ResumeError;

impl Driver {
    /// Returns what was said in the conversation that this run goes on with. Runs of it that died
    /// are ended first, so that every call has its answer.
    pub(crate) async fn join_session(&mut self) -> Result<Vec<Arc<Message>>, AgentError> {
        let Some(log) = self.agent.log.clone() else { return Ok(Vec::new()) };
        if self.request.session.is_none() || self.request.parent.is_some() {
            return Ok(Vec::new());
        }
        self.follows = None;
        let filter = RunFilter { session: Some(self.session.clone()), limit: None };
        for run in log.runs(filter).await? {
            // The runs of a session have an order, however fast they follow each other.
            let behind = run.started_at.after(Duration::from_millis(1));
            self.not_before = self.not_before.max(Some(behind));
            if run.parent.is_some() {
                continue;
            }
            if run.is_open() {
                // Rare, and large: every run would keep room for it.
                Box::pin(self.end_dead_run(&log, &run)).await?;
            }
            // They are listed newest first.
            self.follows.get_or_insert(run.run);
        }
        let Conversation { said, sessions } = conversation(&*log, self.follows.as_ref()).await?;
        let own = std::iter::once(self.session.clone());
        let earlier = sessions.into_iter().filter(|session| *session != self.session);
        self.sessions = own.chain(earlier).collect();
        Ok(said)
    }

    /// Ends an open run whose process died; one that lives, or waits for a person, keeps the session
    /// busy.
    async fn end_dead_run(
        &mut self,
        log: &Arc<dyn EventLog>,
        run: &RunSummary,
    ) -> Result<(), AgentError> {
        let session = self.session.clone();
        let busy = || LogError::session_busy(session.clone(), run.run.clone());
        if run.state == RunState::WaitingApproval {
            return Err(busy().into());
        }
        let claim = match log.claim(&run.run).await {
            Ok(claim) => claim,
            Err(LogError::Claimed(_)) => return Err(busy().into()),
            Err(error) => return Err(error.into()),
        };
        let folded = fold(&**log, &run.run, None, None).await?;
        let Folded { summary, events, definition, replayed, sessions } = folded;
        let Replayed { machine, .. } = replayed;
        if !summary.is_open() {
            // It ended while nobody looked.
            return Ok(());
        }
        if machine.is_waiting() {
            return Err(busy().into());
        }
        let mut lost = machine.lost();
        // Nothing is run again for a run that ends now.
        lost.interrupted = [lost.rerun, lost.interrupted].concat();
        lost.rerun = Vec::new();
        let cancel = SignalReceived { name: CANCEL.into(), data: Value::Null };
        let agent = Arc::clone(&self.agent);
        let mut driver = Box::new(Self::resuming(
            agent,
            Arc::clone(log),
            summary,
            definition,
            &events,
            sessions,
        ));
        driver.claim = Some(claim);
        let first = vec![EventKind::from(lost), cancel.into()];
        match Box::pin(driver.go_on(Box::new(machine), first)).await {
            Ok(_) => Ok(()),
            Err(failure) => Err(failure.error),
        }
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
