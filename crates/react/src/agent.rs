//! The agent: built once, then run, resumed, reopened, dispatched and controlled. Each child module holds one of its
//! operations.

pub(crate) mod as_tool;
pub(crate) mod build;
pub(crate) mod build_error;
pub(crate) mod builder;
pub(crate) mod control;
pub(crate) mod inner;
pub(crate) mod operator;
pub(crate) mod pack;
pub(crate) mod reopen;
pub(crate) mod resume;
pub(crate) mod settle;
pub(crate) mod status;
pub(crate) mod stream;
#[cfg(feature = "json-schema")]
pub(crate) mod typed;
#[cfg(not(feature = "json-schema"))]
pub(crate) mod untyped;

use std::fmt;
use std::sync::Arc;

use backstop_provider::Provider;
use backstop_react_machine::AgentDefinition;

use crate::agent::builder::AgentBuilder;
use crate::agent::inner::AgentInner;
use crate::error::RunFailure;
use crate::live::Subscriber;
use crate::outcome::RunOutcome;
use crate::request::RunRequest;
use crate::run::start::StartingRun;

/// A model with tools under the failure model. Clones share it; runs are independent.
///
/// ```
/// use backstop_provider::ScriptedProvider;
/// use backstop_react::Agent;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let agent = Agent::builder(ScriptedProvider::saying(["It is 42."])).build()?;
/// let outcome = agent.run("What is 40 + 2?").await?;
/// assert_eq!(outcome.text(), "It is 42.");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Agent {
    pub(crate) inner: Arc<AgentInner>,
}

impl Agent {
    /// Returns a builder of an agent around a provider.
    pub fn builder(provider: impl Provider + 'static) -> AgentBuilder {
        AgentBuilder::from_shared(Arc::new(provider))
    }

    /// Returns the agent's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.definition.name
    }

    /// Returns the resolved definition, as recorded in `run.started`.
    #[must_use]
    pub fn definition(&self) -> &AgentDefinition {
        &self.inner.definition
    }

    /// Runs the agent to its end.
    ///
    /// # Errors
    ///
    /// [`RunFailure`], with the reason, the usage and the work done until then. A failing tool is no error here: the
    /// model reads its failure.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the run where it is; its tools are aborted and its record ends with the last durable
    /// event. To end it with a complete record, cancel it with [`RunRequest::cancelled_by`].
    pub async fn run(&self, request: impl Into<RunRequest>) -> Result<RunOutcome, RunFailure> {
        // On the heap, so that a run in flight holds the request once and not in every step. The future is boxed too,
        // because callers that spawn or join it move it.
        let request = request.into();
        let start = Box::new(StartingRun::new(Arc::clone(&self.inner), request));
        Box::pin(start.run()).await
    }

    /// Subscribes to all runs of this agent from now on, in one lossy channel: a subscriber that is more than 256
    /// messages behind misses some, and gets their number. No run waits for it. To follow one run to its end, use
    /// [`Agent::stream`].
    #[must_use]
    pub fn subscribe(&self) -> Subscriber {
        self.inner.hub.subscribe()
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent").field("definition", &self.inner.definition).finish_non_exhaustive()
    }
}
