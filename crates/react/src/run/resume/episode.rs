//! The next episode of a run that is over.

use layer0::event::RunReopened;
use tracing::Instrument;

use super::{Resumed, Run};
use crate::error::AgentError;
use crate::outcome::RunOutcome;
use crate::resume_error::ResumeError;

impl Resumed {
    /// Goes on with a run that is over. When its first event cannot be written, nothing has changed.
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
        // What came while tools were asked about their calls, and what the run was told too late in the episode
        // before, counts before the model is asked.
        run.take_unread().await?;
        run.read_inbox().await
    }
}
