//! From an execution the machine asked for to the facts it came to.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use error_store::{DATABASE_ERROR, Summary, code_of_text};
use layer0::Timestamp;
use layer0::event::{EventKind, ToolAttempted, ToolLate, ToolResponded};
use layer0::failure::{Effect, Exhausted, Failure, GiveUp, Retry};
use layer0::id::{CallId, SessionId};
use react_machine::{EffectId, HookPoint, Input, ToolRun};
use retry::{FailedAttempt, RetryRequest};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tool::{Admitted, ToolContext, ToolError, failed_text};
use tower::{Layer, Service, ServiceExt};
use tracing::Instrument;

use crate::agent::Inner;
use crate::driver::failing;
use crate::failing::is_stored;
use crate::hook::{HookContext, HookError, Moment};
use crate::hooking::{Hooks, Kind};
use crate::large::Sized;
use crate::redacting::recordable;
use crate::running::execute;

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A fact to append while a tool or a model is at work, and who waits for that. In a box, because a
/// channel of tokio's keeps room for 32 messages, and few runs ever send one.
pub(crate) type Note = Box<(Input, oneshot::Sender<()>)>;

/// What a tool came to.
pub(crate) struct ToolDone {
    id: EffectId,
    at: Timestamp,
    facts: Vec<EventKind>,
    /// The error of a hook that stops the run.
    pub(crate) rejected: Option<HookError>,
}

/// Runs one tool and turns what it came to into facts.
pub(crate) async fn run_tool(
    agent: Arc<Inner>,
    hook_context: HookContext,
    sessions: Arc<[SessionId]>,
    depth: u32,
    run: ToolRun,
    admitted: Admitted,
    notes: mpsc::Sender<Note>,
) -> ToolDone {
    let HookContext { run: run_id, session } = &hook_context;
    let began = agent.clock.now();
    let stores = admitted.stores_errors();
    let limit = admitted
        .spec()
        .timeout
        .unwrap_or(Duration::from_millis(agent.definition.limits.tool_timeout_ms));
    let attempt = ToolAttempt {
        agent: Arc::clone(&agent),
        admitted: Arc::new(admitted),
        limit,
        context: hook_context.clone(),
        call_id: run.call_id.clone(),
        execution: run.execution,
        sessions,
        depth,
        notes,
    };
    let span = tracing::info_span!("tool", tool = %run.tool, call = %run.call_id);
    let retried = agent.tool_retry().layer().layer(RunOnce).oneshot(attempt);
    let result = retried.instrument(span).await.map_err(|Hinted(error)| error);
    let took = agent.clock.now().since(began).as_millis();
    let duration_ms = u64::try_from(took).unwrap_or(u64::MAX);
    let failing = failing(&agent, run_id, session, &run.call_id, &run.tool, duration_ms);
    let mut facts = match result {
        Ok(output) => {
            let output = recordable(&agent.redactor, output);
            // What the detail tools give out is bounded by itself.
            let output = if stores { Sized::of(output, &agent) } else { Sized::Small(output) };
            let (note, output) = output.keep(&agent, &failing).await;
            let responded = ToolResponded {
                call_id: run.call_id.clone(),
                tool: Arc::clone(&run.tool),
                ok: true,
                output,
                duration_ms,
                error: None,
            };
            note.into_iter().chain([responded.into()]).collect()
        }
        Err(error) if stores && is_stored(&error) => {
            failing.store_and_respond(&error, agent.errors.as_deref()).await
        }
        Err(error) => {
            let answer = failing.respond(&error, &failed_text(&run.tool, &error));
            let unread = error.author_code().is_some_and(|code| &**code == DATABASE_ERROR);
            if stores || !unread {
                vec![answer]
            } else {
                let why = error.kind().to_string();
                vec![failing.degraded("get", code_of_text(&why), &why), answer]
            }
        }
    };
    let rejected = call_hooks(agent.hooks(), &hook_context, &mut facts).await;
    ToolDone { id: run.id, at: agent.clock.now(), facts, rejected }
}

impl ToolDone {
    /// Returns what the machine is told, in order.
    pub(crate) fn inputs(self) -> impl Iterator<Item = Input> {
        let Self { id, at, facts, .. } = self;
        facts.into_iter().map(move |fact| match fact {
            answer @ EventKind::ToolResponded(_) => Input::answer(at, id, answer),
            note => Input::fact(at, note),
        })
    }
}

/// Calls the hooks of a tool that ran. What they leave in the record stands before the answer.
async fn call_hooks(
    hooks: Hooks<'_>,
    context: &HookContext,
    facts: &mut Vec<EventKind>,
) -> Option<HookError> {
    let Some(EventKind::ToolResponded(answer)) = facts.last() else { return None };
    if !hooks.has(HookPoint::AfterTool) {
        return None;
    }
    let moment = Moment::AfterTool {
        call_id: &answer.call_id,
        tool: &answer.tool,
        ok: answer.ok,
        output: &answer.output,
    };
    let called = hooks.call(moment, context, Kind::All).await;
    let stop = called.stop.map(|stop| stop.into_fact(moment, hooks));
    let (fact, rejected) = stop.map_or((None, None), |(fact, error)| (Some(fact), error));
    let before_answer = facts.len() - 1;
    facts.splice(before_answer..before_answer, called.notes.into_iter().chain(fact));
    rejected
}

/// An execution on its way through the retry layer. Clones are its attempts.
#[derive(Clone)]
struct ToolAttempt {
    agent: Arc<Inner>,
    admitted: Arc<Admitted>,
    limit: Duration,
    context: HookContext,
    call_id: CallId,
    execution: u32,
    sessions: Arc<[SessionId]>,
    depth: u32,
    notes: mpsc::Sender<Note>,
}

impl ToolAttempt {
    fn context(&self) -> ToolContext {
        let HookContext { run, session } = self.context.clone();
        let deadline = self.agent.clock.now().after(self.limit);
        let mut context = ToolContext::new(run, session, self.call_id.clone(), deadline);
        context.granted = Arc::clone(self.admitted.needs());
        context.sessions = Arc::clone(&self.sessions);
        context.depth = self.depth;
        context.app_state.clone_from(&self.agent.app_state);
        context
    }
}

impl RetryRequest<Hinted> for ToolAttempt {
    fn is_idempotent(&self) -> bool {
        self.admitted.spec().idempotent
    }

    /// Waits until the retry is in the log; the driver drops the tool if it cannot be.
    fn attempted(&self, attempt: FailedAttempt<'_, Hinted>) -> Option<BoxFuture<()>> {
        let attempted = ToolAttempted {
            call_id: self.call_id.clone(),
            execution: self.execution,
            reason: attempt.error.code().into(),
            message: self
                .agent
                .redactor
                .redact(&Summary::of(&attempt.error.0.kind().to_string(), None).text)
                .into(),
            delay_ms: u64::try_from(attempt.delay.as_millis()).unwrap_or(u64::MAX),
        };
        let (note, notes) = (Input::fact(self.agent.clock.now(), attempted), self.notes.clone());
        Some(Box::pin(async move {
            let (logged, done) = oneshot::channel();
            if notes.send(Box::new((note, logged))).await.is_ok() {
                let _ = done.await;
            }
        }))
    }
}

/// A tool's error, which the runtime waits for only when the tool says how long. Whether anything
/// else is worth another try is for the model to decide.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct Hinted(ToolError);

impl Failure for Hinted {
    fn code(&self) -> &'static str {
        self.0.code()
    }

    fn retry(&self) -> Retry {
        match self.0.retry() {
            hint @ Retry::After(_) => hint,
            Retry::Backoff | Retry::Never => Retry::Never,
        }
    }

    fn effect(&self) -> Effect {
        self.0.effect()
    }
}

/// The model reads what the tool said last, not how often it was asked.
impl From<Exhausted<Hinted>> for Hinted {
    fn from(exhausted: Exhausted<Hinted>) -> Self {
        exhausted.last
    }
}

impl GiveUp for Hinted {
    fn stand_in() -> Self {
        Self(ToolError::Cancelled)
    }
}

/// The innermost service: one execution.
#[derive(Clone)]
struct RunOnce;

impl Service<ToolAttempt> for RunOnce {
    type Response = Value;
    type Error = Hinted;
    type Future = BoxFuture<Result<Value, Hinted>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Hinted>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, attempt: ToolAttempt) -> Self::Future {
        Box::pin(async move {
            let context = attempt.context();
            let ToolAttempt { agent, admitted, limit, call_id, execution, notes, .. } = attempt;
            let late = ToolLate { call_id, execution };
            let clock = Arc::clone(&agent.clock);
            let note_late = move || {
                // The run may be over, or busy with other notes; a late answer is not waited for.
                let note = (Input::fact(clock.now(), late), oneshot::channel().0);
                let _ = notes.try_send(Box::new(note));
            };
            execute(admitted, context, limit, &agent.clock, note_late).await.map_err(Hinted)
        })
    }
}
