//! The next episode of a finished run.

use layer0::event::RunReopened;
use tracing::Instrument;

use super::{Resumed, Run};
use crate::error::AgentError;
use crate::outcome::RunOutcome;
use crate::resume_error::ResumeError;

impl Resumed {
    /// Reopens a finished run. If its first event cannot be written, nothing has changed.
    pub(crate) async fn reopen(mut self, reopened: RunReopened) -> Result<RunOutcome, ResumeError> {
        let Run { agent, context, .. } = &*self.run;
        let span = tracing::info_span!("run", run = %context.run, agent = %agent.definition.name);
        match self.begin_episode(reopened).instrument(span.clone()).await {
            Ok(()) => Box::pin(self.run.go()).instrument(span).await.map_err(Into::into),
            Err(AgentError::Storage(error)) => Err(error.into()),
            Err(error) => Err(self.run.failure(error).into()),
        }
    }

    async fn begin_episode(&mut self, reopened: RunReopened) -> Result<(), AgentError> {
        let Self { run, follows, .. } = self;
        run.read_history(follows.as_ref()).await?;
        let reopened = run.ledger.fact(reopened);
        run.ledger.step([reopened]).await?;
        // Rows that arrived during the probes, and those that came too late for the previous episode, are handled
        // before the model is called.
        run.take_unread().await?;
        run.read_inbox().await
    }
}
