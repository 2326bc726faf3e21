//! The request of a run.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use layer0::event::Cause;
use layer0::id::{RunId, SessionId};
use layer0::message::Image;
use layer0::operator::{Context, Task};
use layer0::usage::Allowance;
use layer0::{Orchestrator, Timestamp};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::history::History;
use crate::place::DispatchContext;

/// The request of a run, with the ids to record it under.
#[derive(Clone)]
#[non_exhaustive]
pub struct RunRequest {
    /// The input.
    pub input: Arc<str>,
    /// The images that belong to the input.
    pub images: Arc<[Image]>,
    /// The conversation before the run.
    pub history: History,
    /// The session of the run; a new one if `None`.
    pub session: Option<SessionId>,
    /// The id of the run; a new one if `None`.
    pub run: Option<RunId>,
    /// The run that starts this one.
    pub parent: Option<RunId>,
    /// The root of its callers; the parent if `None`.
    pub(crate) root: Option<RunId>,
    /// The labels of the run.
    pub labels: BTreeMap<String, String>,
    /// The caller's place in a distributed trace, as W3C `traceparent`.
    pub trace_parent: Option<Arc<str>>,
    /// The runs of the session that are dispatched together, this one included.
    pub(crate) together: Arc<[RunId]>,
    /// The delivery to a behaviour that led to the run.
    pub(crate) cause: Option<Cause>,
    /// Number of dispatches above it.
    pub depth: u32,
    /// The deadline of the run.
    pub(crate) deadline: Option<Timestamp>,
    /// Its part of its caller's budget.
    pub(crate) allowance: Option<Allowance>,
    /// Whether a child run reads the messages of the session.
    pub(crate) reads_session: bool,
    /// Its place among other runs in this process.
    pub(crate) place: DispatchContext,
    /// JSON Schema of the final answer; any text if `None`.
    pub output_schema: Option<Arc<Value>>,
    /// Token that stops the run when cancelled.
    pub cancellation: CancellationToken,
}

impl RunRequest {
    /// Returns a request in a new session.
    pub fn new(input: impl Into<Arc<str>>) -> Self {
        Self {
            input: input.into(),
            images: Arc::default(),
            history: History::default(),
            session: None,
            run: None,
            parent: None,
            root: None,
            labels: BTreeMap::new(),
            trace_parent: None,
            together: Arc::default(),
            cause: None,
            depth: 0,
            deadline: None,
            allowance: None,
            reads_session: false,
            place: DispatchContext::default(),
            output_schema: None,
            cancellation: CancellationToken::new(),
        }
    }

    /// Sets the images of the input, in this order. The record of the run holds them. A model without vision answers as
    /// its provider does, mostly with [`InvalidRequest`].
    ///
    /// [`InvalidRequest`]: backstop_provider::ProviderError::InvalidRequest
    #[must_use]
    pub fn images(mut self, images: impl Into<Arc<[Image]>>) -> Self {
        self.images = images.into();
        self
    }

    /// Sets the conversation before the run: messages, oldest first, or the transcript of an earlier run. The model
    /// gets it between its instructions and the input, and the record of the run holds it.
    ///
    /// It is checked before the run starts: it begins with the user, speakers alternate, every call is answered, and
    /// the input is not part of it. With a [`session`](RunRequest::session), it precedes the first run of that session;
    /// later runs have the session's own messages. Stored errors and results that the messages name can be read if the
    /// history has their [sessions](History::with_sessions), as the transcript of a run does.
    ///
    /// ```
    /// use backstop_provider::ScriptedProvider;
    /// use backstop_react::{Agent, RunRequest};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let agent = Agent::builder(ScriptedProvider::saying(["It is 42.", "It is 43."])).build()?;
    /// let first = agent.run("What is 40 + 2?").await?;
    /// let request = RunRequest::new("And one more?").history(&first.transcript);
    /// assert_eq!(agent.run(request).await?.text(), "It is 43.");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn history(mut self, messages: impl Into<History>) -> Self {
        self.history = messages.into();
        self
    }

    /// Records the run under this session, and continues from the messages of the session's runs. The agent needs a log
    /// that has them; without a log the run fails with [`RequestError::SessionWithoutLog`].
    ///
    /// [`RequestError::SessionWithoutLog`]: crate::RequestError::SessionWithoutLog
    #[must_use]
    pub fn session(mut self, session: impl Into<SessionId>) -> Self {
        self.session = Some(session.into());
        self
    }

    /// Records the run under this id: 1 to 256 bytes without control characters. If the log has a run with the id, the
    /// run does not start and fails with `run.exists` ([`LogError::RunExists`] in [`AgentError::NotStarted`]), or with
    /// `run.open` while another process owns that run. [`Agent::resume`] continues it, or returns the result of one
    /// that has ended; so a request that is sent again is answered once.
    ///
    /// [`Agent::resume`]: crate::Agent::resume
    /// [`AgentError::NotStarted`]: crate::AgentError::NotStarted
    /// [`LogError::RunExists`]: backstop_event_log::LogError::RunExists
    #[must_use]
    pub fn run(mut self, run: RunId) -> Self {
        self.run = Some(run);
        self
    }

    /// Sets a token that stops the run when cancelled: steps in flight are dropped, every open call is answered, and
    /// the run ends in `Ok` with `Stop::Cancelled`.
    #[must_use]
    pub fn cancelled_by(mut self, token: CancellationToken) -> Self {
        self.cancellation = token;
        self
    }

    /// Sets the orchestrator through which the run's tools dispatch operators. A run that an orchestrator dispatches
    /// has it already; a run that is started here is not retried by the orchestrator.
    #[must_use]
    pub fn orchestrator(mut self, orchestrator: Arc<dyn Orchestrator>) -> Self {
        self.place.orchestrator = Some(orchestrator);
        self
    }

    /// Sets the number of dispatches above the run; the default is 0. A run deeper than its budget allows is refused.
    #[must_use]
    pub const fn depth(mut self, depth: u32) -> Self {
        self.depth = depth;
        self
    }

    /// Sets the maximum time for which the run may be parked, instead of failing, if an endpoint asks for a wait. A
    /// parked run is not over; [`RunOutcome::parked_until`](crate::RunOutcome::parked_until) has the time to resume it.
    #[must_use]
    pub const fn max_park(mut self, longest: Duration) -> Self {
        self.place.max_park = Some(longest);
        self
    }

    /// Returns the request of a dispatch.
    pub(crate) fn for_dispatch(input: String, task: &Task, context: &Context) -> Self {
        let mut request = Self::new(input).images(Arc::clone(&task.images)).depth(context.depth);
        request.session.clone_from(&context.session);
        request.history = request.history.with_sessions(Arc::clone(&context.sessions));
        request.run.clone_from(&context.run);
        request.parent.clone_from(&context.parent);
        request.root.clone_from(&context.root);
        request.together = Arc::clone(&context.together);
        request.cause.clone_from(&context.cause);
        request.labels.clone_from(&context.labels);
        request.output_schema = task.output_schema.clone().map(Arc::new);
        // The allowance of a child run's caller is within that of the task.
        (request.deadline, request.allowance) =
            (context.deadline, context.allowance.or(task.allowance));
        request.reads_session = task.history;
        request.place = DispatchContext {
            caller: context.caller.clone(),
            orchestrator: context.orchestrator.clone(),
            signals: Some(context.signals.clone()),
            max_park: task.max_park.or(context.max_park),
            adopts: context.adopts,
            accepts_lost_tail: context.accepts_lost_tail,
            trace_parent: None,
        };
        request
    }

    /// Adds a label to the run, such as a tenant or a ticket; the last value of a key counts. At most 32 labels, keys
    /// of 1 to 64 bytes, values of at most 256, all without control characters; otherwise the run fails with
    /// [`RequestError::Label`]. Labels are part of `run.started`, and runs can be listed by them.
    ///
    /// [`RequestError::Label`]: crate::RequestError::Label
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// Sets the caller's place in a distributed trace: W3C `traceparent`, such as
    /// `00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01`. It is part of `run.started`.
    #[must_use]
    pub fn trace_parent(mut self, parent: impl Into<Arc<str>>) -> Self {
        self.trace_parent = Some(parent.into());
        self
    }

    /// Refuses an invalid `traceparent`.
    pub(crate) fn check_context(&self) -> Result<(), &'static str> {
        match &self.trace_parent {
            Some(parent) if !is_trace_parent(parent) => {
                Err("`trace_parent` is version, trace id, parent id and flags, as W3C has them")
            }
            _ => Ok(()),
        }
    }

    /// Asks for an answer that fits a JSON Schema, with the feature `json-schema`. An answer that does not fit is sent
    /// back with the reason once; then the run fails. [`Agent::run_typed`] does this with a type's own schema.
    ///
    /// [`Agent::run_typed`]: crate::Agent::run_typed
    #[cfg(feature = "json-schema")]
    #[must_use]
    pub fn output_schema(mut self, schema: Value) -> Self {
        self.output_schema = Some(Arc::new(schema));
        self
    }

    /// Sets the run that started this one.
    #[must_use]
    pub fn parent(mut self, parent: RunId) -> Self {
        self.parent = Some(parent);
        self
    }
}

/// Returns whether a text is `version-trace_id-parent_id-flags`, in lower-case hex digits.
fn is_trace_parent(text: &str) -> bool {
    let is_hex = |part: &str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let parts: Vec<&str> = text.split('-').collect();
    parts.iter().map(|part| part.len()).eq([2, 32, 16, 2]) && parts.into_iter().all(is_hex)
}

impl<T: Into<Arc<str>>> From<T> for RunRequest {
    fn from(input: T) -> Self {
        Self::new(input)
    }
}

impl fmt::Debug for RunRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunRequest")
            .field("input", &self.input)
            .field("session", &self.session)
            .field("run", &self.run)
            .field("parent", &self.parent)
            .field("labels", &self.labels)
            .finish_non_exhaustive()
    }
}
