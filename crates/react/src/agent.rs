use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

use clock::Clock;
use error_store::{ErrorStore, ResultStore};
use event_log::EventLog;
use layer0::Timestamp;
use layer0::event::AgentRecord;
use layer0::id::{RunId, SessionId};
use layer0::message::Image;
use provider::{ModelSettings, Provider};
use react_machine::{AgentDefinition, DefinitionError, Machine};
use redact::Redactor;
use retry::{Jitter, RetryConfig, RetryPolicy};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tool::{Grants, Toolset};

use crate::approval::Approver;
use crate::builder::AgentBuilder;
use crate::digest::record;
use crate::driver::Driver;
use crate::error::RunFailure;
use crate::hook::Hook;
use crate::live::{Hub, Subscriber};
use crate::memory::Memory;
use crate::model::ModelStack;
use crate::outcome::RunOutcome;

/// A model with tools under the failure model. Cloning shares it; runs are independent.
///
/// ```
/// use provider::ScriptedProvider;
/// use react::Agent;
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
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) definition: Arc<AgentDefinition>,
    pub(crate) prepared: LazilyPrepared,
    pub(crate) stack: ModelStack,
    /// Are answers asked for in pieces?
    pub(crate) stream: bool,
    pub(crate) retry: RetryConfig,
    pub(crate) jitter: Jitter,
    pub(crate) settings: ModelSettings,
    pub(crate) tools: Toolset,
    pub(crate) grants: Grants,
    pub(crate) log: Option<Arc<dyn EventLog>>,
    pub(crate) errors: Option<Arc<dyn ErrorStore>>,
    pub(crate) results: Option<Arc<dyn ResultStore>>,
    pub(crate) memory: Option<Arc<dyn Memory>>,
    pub(crate) app_state: Option<Arc<dyn Any + Send + Sync>>,
    pub(crate) hooks: Box<[Hook]>,
    pub(crate) approver: Option<Arc<dyn Approver>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) redactor: Redactor,
    pub(crate) hub: Hub,
}

/// What every run begins with, made for the first one: an agent that was never run does not hold it.
struct Prepared {
    record: AgentRecord,
    /// A run that has not begun.
    machine: Result<Machine, DefinitionError>,
}

/// Makes it when it is first asked for.
#[derive(Default)]
pub(crate) struct LazilyPrepared(OnceLock<Box<Prepared>>);

impl Inner {
    /// Returns what decides whether a tool is run once more.
    pub(crate) fn tool_retry(&self) -> RetryPolicy {
        RetryPolicy::new(self.retry, Arc::clone(&self.clock)).jitter(self.jitter.clone())
    }

    /// Returns what `run.started` says of the agent.
    pub(crate) fn record(&self) -> AgentRecord {
        self.prepared().record.clone()
    }

    /// Returns a run that has not begun.
    pub(crate) fn machine(&self) -> Result<Machine, DefinitionError> {
        self.prepared().machine.clone()
    }

    fn prepared(&self) -> &Prepared {
        self.prepared.0.get_or_init(|| {
            let machine = Machine::new(Arc::clone(&self.definition));
            Box::new(Prepared { record: record(&self.definition), machine })
        })
    }
}

/// What a run is asked, and under which names it is recorded.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RunRequest {
    /// The question.
    pub input: Arc<str>,
    /// The pictures it speaks of.
    pub images: Arc<[Image]>,
    /// The conversation it belongs to; a fresh one where `None`.
    pub session: Option<SessionId>,
    /// The id to record it under; a fresh one where `None`.
    pub run: Option<RunId>,
    /// The run that starts this one.
    pub parent: Option<RunId>,
    /// How many dispatches are above it.
    pub depth: u32,
    /// JSON Schema that the final answer has to fit; any text where `None`.
    pub output_schema: Option<Arc<Value>>,
    /// Stops the run, when cancelled.
    pub cancellation: CancellationToken,
}

impl RunRequest {
    /// Makes a request in a fresh conversation.
    pub fn new(input: impl Into<Arc<str>>) -> Self {
        Self {
            input: input.into(),
            images: Arc::default(),
            session: None,
            run: None,
            parent: None,
            depth: 0,
            output_schema: None,
            cancellation: CancellationToken::new(),
        }
    }

    /// Shows pictures with the question, in this order. The record of the run holds them. A model that
    /// cannot see answers as its provider does, mostly with [`InvalidRequest`].
    ///
    /// [`InvalidRequest`]: provider::ProviderError::InvalidRequest
    #[must_use]
    pub fn images(mut self, images: impl Into<Arc<[Image]>>) -> Self {
        self.images = images.into();
        self
    }

    /// Records the run under this conversation.
    #[must_use]
    pub fn session(mut self, session: impl Into<SessionId>) -> Self {
        self.session = Some(session.into());
        self
    }

    /// Records the run under this id, which must be new.
    #[must_use]
    pub fn run(mut self, run: RunId) -> Self {
        self.run = Some(run);
        self
    }

    /// Stops the run when this token is cancelled: what is in flight is dropped, every open call is
    /// answered, and the run ends in `Ok` with `Stop::Cancelled`.
    #[must_use]
    pub fn cancelled_by(mut self, token: CancellationToken) -> Self {
        self.cancellation = token;
        self
    }

    /// Tells the run how many dispatches are above it; 0 otherwise. A run deeper than its budget
    /// allows ends at once.
    #[must_use]
    pub const fn depth(mut self, depth: u32) -> Self {
        self.depth = depth;
        self
    }

    /// Asks for an answer that fits a JSON Schema. One that does not is sent back with the reason
    /// once; then the run fails. [`Agent::run_typed`] does this with a type's own schema.
    #[must_use]
    pub fn output_schema(mut self, schema: Value) -> Self {
        self.output_schema = Some(Arc::new(schema));
        self
    }

    /// Notes which run started this one.
    #[must_use]
    pub fn parent(mut self, parent: RunId) -> Self {
        self.parent = Some(parent);
        self
    }
}

impl<T: Into<Arc<str>>> From<T> for RunRequest {
    fn from(input: T) -> Self {
        Self::new(input)
    }
}

impl Agent {
    /// Begins an agent around a provider.
    pub fn builder(provider: impl Provider + 'static) -> AgentBuilder {
        AgentBuilder::shared(Arc::new(provider))
    }

    /// Returns the agent's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.definition.name
    }

    /// Returns the resolved definition, as `run.started` records it.
    #[must_use]
    pub fn definition(&self) -> &AgentDefinition {
        &self.inner.definition
    }

    /// Runs the agent to its end.
    ///
    /// # Errors
    ///
    /// [`RunFailure`], with the reason, the usage and the work done until then. A failing tool is
    /// no error here: the model reads it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the run where it is; its tools are aborted and its record ends
    /// with what was durable. To end it with a complete record, cancel it with
    /// [`RunRequest::cancelled_by`].
    pub async fn run(&self, request: impl Into<RunRequest>) -> Result<RunOutcome, RunFailure> {
        // On the heap, so that a run in flight holds it once and not in every step; the future too, which
        // whoever spawns or joins it moves.
        let driver = Box::new(Driver::new(Arc::clone(&self.inner), request.into()));
        Box::pin(driver.run()).await
    }

    /// Listens to the runs of this agent from now on. Nobody waits for a subscriber: one that is
    /// slow is told how many messages it missed.
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

/// Makes a new run id: `run_` and a UUIDv7 of this moment, so that ids sort by start.
#[must_use]
pub fn new_run_id(at: Timestamp) -> RunId {
    RunId::new(format!("run_{}", uuid_at(at)))
}

pub(crate) fn new_session_id(at: Timestamp) -> SessionId {
    SessionId::new(format!("ses_{}", uuid_at(at)))
}

fn uuid_at(at: Timestamp) -> uuid::Uuid {
    let ms = u64::try_from(at.as_millis()).unwrap_or(0);
    let nanos = u32::try_from(ms % 1_000).unwrap_or(0) * 1_000_000;
    uuid::Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, ms / 1_000, nanos))
}
