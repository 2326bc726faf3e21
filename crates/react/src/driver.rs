//! One run: feeds the machine, appends what it decides, then acts.

use std::collections::{BTreeMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;

use clock::{BoxFuture as ClockFuture, Clock};
use event_log::RunWriter;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use layer0::event::{
    EventKind, ModelAttempted, ModelFailed, ModelResponded, RunStarted, SignalReceived,
    ToolRequested,
};
use layer0::failure::{Failure, chain};
use layer0::id::{CallId, RunId, SessionId};
use layer0::usage::Usage;
use layer0::{Code, Timestamp, ToolSpec, code};
use provider::{ModelRequest, ProviderError};
use react_machine::{
    BUDGET_CANCELLED, CANCEL, Effect, FailureCause, Finish, Input, Machine, ModelCall, Output,
    ToolBatch, ToolRun,
};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tool::{Admitted, ToolError, failed_text};
use tower::ServiceExt;
use tracing::Instrument;

use crate::agent::{Inner, RunRequest, new_run_id, new_session_id};
use crate::error::{AgentError, RunFailure};
use crate::failing::Failing;
use crate::live::Live;
use crate::model::{AttemptedCall, CallRecord};
use crate::outcome::RunOutcome;
use crate::redacting::{redact_calls, redact_shared};
use crate::running::panic_text;
use crate::tool_run::{Note, run_tool};

/// Facts a tool execution came to.
type ToolDone = Pin<Box<dyn Future<Output = Vec<Input>> + Send>>;

/// Drives one run. Effects are performed here and nowhere else, each after the append of the
/// decision that asked for it, and each comes back as facts.
pub(crate) struct Driver {
    agent: Arc<Inner>,
    run: RunId,
    session: SessionId,
    request: RunRequest,
    writer: RunWriter,
    effects: VecDeque<Effect>,
    finish: Option<Finish>,
    /// Calls that were admitted and wait for their effect.
    admitted: BTreeMap<CallId, Admitted>,
    /// Executions that wait for a free place.
    queued: VecDeque<ToolRun>,
    running: FuturesUnordered<ToolDone>,
    /// What running tools have to have in the log before they go on.
    notes: mpsc::Receiver<Note>,
    noted: mpsc::Sender<Note>,
    /// The provider's error with its sources; the log has it as data.
    model_error: Option<ProviderError>,
    /// Did a tool that is not safe to repeat run?
    acted: bool,
    /// What was used as far as the log has it; the machine is ahead when an append fails.
    usage: Usage,
    tools: Arc<[ToolSpec]>,
}

impl Driver {
    pub(crate) fn new(agent: Arc<Inner>, request: RunRequest) -> Self {
        let now = agent.clock.now();
        let run = request.run.clone().unwrap_or_else(|| new_run_id(now));
        let session = request.session.clone().unwrap_or_else(|| new_session_id(now));
        let (noted, notes) = mpsc::channel(1);
        Self {
            writer: RunWriter::new(Arc::clone(&agent.log), run.clone()),
            run,
            session,
            request,
            effects: VecDeque::new(),
            finish: None,
            admitted: BTreeMap::new(),
            queued: VecDeque::new(),
            running: FuturesUnordered::new(),
            notes,
            noted,
            model_error: None,
            acted: false,
            usage: Usage::default(),
            tools: Arc::clone(&agent.definition.tools),
            agent,
        }
    }

    pub(crate) async fn run(self) -> Result<RunOutcome, RunFailure> {
        let span = tracing::info_span!("run", run = %self.run, agent = %self.agent.definition.name);
        self.drive().instrument(span).await
    }

    async fn drive(mut self) -> Result<RunOutcome, RunFailure> {
        let mut machine = match Machine::new(Arc::clone(&self.agent.definition)) {
            Ok(machine) => machine,
            Err(error) => return Err(self.failed_to_start(AgentError::Internal(error.into()))),
        };
        match self.perform_all(&mut machine).await {
            Ok(finish) => self.end(&machine, finish),
            Err(error) => Err(self.failure(&machine, error)),
        }
    }

    /// Starts the run and performs effects until the machine finishes.
    async fn perform_all(&mut self, machine: &mut Machine) -> Result<Finish, AgentError> {
        let started = RunStarted {
            input: self.agent.redactor.redact_held(&self.request.input).into(),
            session: self.session.clone(),
            agent: self.agent.record.clone(),
            parent: self.request.parent.clone(),
        };
        self.step(machine, [self.fact(started)]).await?;
        loop {
            if let Some(finish) = self.finish.take() {
                return Ok(finish);
            }
            if self.request.cancellation.is_cancelled() {
                self.cancel(machine).await?;
                continue;
            }
            match self.effects.pop_front() {
                Some(Effect::CallModel(call)) => self.call_model(machine, call).await?,
                Some(Effect::AdmitTools(batch)) => {
                    let facts = self.admit(machine, &batch);
                    self.step(machine, facts).await?;
                }
                Some(Effect::RunTool(run)) => {
                    self.queued.push_back(run);
                    self.start_tools();
                }
                Some(other) => return Err(internal(format!("unknown effect: {other:?}"))),
                None => {
                    let deadline = sleep_until(&self.agent.clock, machine.deadline());
                    let facts = tokio::select! {
                        biased;
                        () = self.request.cancellation.cancelled() => continue,
                        () = deadline => {
                            self.tick(machine).await?;
                            continue;
                        }
                        Some((note, logged)) = self.notes.recv() => {
                            self.step(machine, [note]).await?;
                            let _ = logged.send(());
                            continue;
                        }
                        facts = self.running.next() => facts,
                    };
                    let Some(facts) = facts else {
                        return Err(internal("the machine waits for nothing".to_owned()));
                    };
                    self.start_tools();
                    self.step(machine, facts).await?;
                }
            }
        }
    }

    /// Feeds facts, and appends them with what the machine decided on them, in one write. Effects
    /// are only queued here, so that none starts before the append.
    async fn step(
        &mut self,
        machine: &mut Machine,
        facts: impl IntoIterator<Item = Input>,
    ) -> Result<(), AgentError> {
        for fact in facts {
            machine.handle(fact).map_err(|misuse| AgentError::Internal(misuse.into()))?;
            self.drain(machine);
        }
        self.commit(machine).await
    }

    /// Tells the machine the time. If that ends the run, what is in flight is dropped.
    async fn tick(&mut self, machine: &mut Machine) -> Result<(), AgentError> {
        machine.tick(self.agent.clock.now());
        self.drain(machine);
        if self.finish.is_some() {
            self.drop_in_flight();
        }
        self.commit(machine).await
    }

    fn drain(&mut self, machine: &mut Machine) {
        loop {
            match machine.poll() {
                Output::Append(entry) => {
                    self.writer.stage(entry.at, entry.actor, entry.caused_by, entry.kind);
                }
                Output::Perform(effect) => self.effects.push_back(effect),
                Output::Finish(finish) => return self.finish = Some(finish),
                _ => return,
            }
        }
    }

    async fn commit(&mut self, machine: &Machine) -> Result<(), AgentError> {
        for event in self.writer.commit().await? {
            tracing::debug!(seq = event.seq, event = event.kind.event_type(), "logged");
            self.agent.hub.send(|| Live::Logged(Arc::new(event)));
        }
        self.usage = machine.usage();
        Ok(())
    }

    /// Drops what is in flight and tells the machine, which answers every open call.
    async fn cancel(&mut self, machine: &mut Machine) -> Result<(), AgentError> {
        self.drop_in_flight();
        let signal = SignalReceived { name: CANCEL.into(), data: Value::Null };
        self.step(machine, [self.fact(signal)]).await
    }

    fn drop_in_flight(&mut self) {
        self.effects.clear();
        self.queued.clear();
        self.running.clear();
    }

    fn fact(&self, fact: impl Into<EventKind>) -> Input {
        Input::fact(self.agent.clock.now(), fact)
    }

    /// Asks the model through the retry stack. Each attempt that is followed by another is appended
    /// while the stack waits; if that fails, the call is dropped.
    async fn call_model(
        &mut self,
        machine: &mut Machine,
        call: ModelCall,
    ) -> Result<(), AgentError> {
        let (log, mut attempts) = mpsc::channel::<(ModelAttempted, oneshot::Sender<()>)>(1);
        let record = Arc::new(CallRecord::new(
            self.run.clone(),
            call.call,
            call.attempts_before,
            Arc::clone(&self.agent.provider),
            Arc::clone(&self.agent.hub),
            log,
        ));
        let request = ModelRequest {
            messages: call.messages,
            tools: Arc::clone(&self.tools),
            settings: self.agent.settings.capped(call.max_output_tokens),
            sink: None,
        };
        let max_attempts = call.max_attempts;
        let attempted = AttemptedCall { request, record: Arc::clone(&record), max_attempts };
        let span = tracing::info_span!("model", call = call.call);
        let mut response = Box::pin(self.agent.stack.clone().oneshot(attempted).instrument(span));
        let mut recorded = call.attempts_before;
        let cancellation = self.request.cancellation.clone();
        let mut deadline = sleep_until(&self.agent.clock, machine.deadline());
        let result = loop {
            let cut = tokio::select! {
                biased;
                () = cancellation.cancelled() => code::RUN_CANCELLED,
                () = &mut deadline => code::BUDGET_WALL_TIME,
                Some((attempted, logged)) = attempts.recv() => {
                    recorded = attempted.attempt;
                    let input = Input::answer(self.agent.clock.now(), call.id, attempted);
                    self.step(machine, [input]).await?;
                    let _ = logged.send(());
                    continue;
                }
                result = &mut response => break result,
            };
            drop(response);
            // The attempt in flight may be billed, so it counts.
            if record.attempt() > recorded {
                let cut = record.cut(Code::new(cut));
                self.step(machine, [Input::answer(self.agent.clock.now(), call.id, cut)]).await?;
            }
            return match cut {
                code::RUN_CANCELLED => self.cancel(machine).await,
                _ => self.tick(machine).await,
            };
        };
        // The stack held the conversation; the machine is about to append to it.
        drop(response);
        let now = self.agent.clock.now();
        let last = Input::answer(now, call.id, record.attempted(result.as_ref(), None));
        let answer = match result {
            Ok(mut response) => {
                let redactor = &self.agent.redactor;
                redact_calls(redactor, &mut response.tool_calls);
                EventKind::from(ModelResponded {
                    call: call.call,
                    text: redact_shared(redactor, response.text),
                    thinking: response.thinking.map(|text| redact_shared(redactor, text)),
                    tool_calls: response.tool_calls,
                    stop_reason: response.stop_reason,
                    usage: response.usage,
                })
            }
            Err(error) if self.cut_short_by_budget(&error, call.max_attempts) => {
                self.step(machine, [last]).await?;
                return self.tick(machine).await;
            }
            Err(error) => {
                let redact = |text: String| self.agent.redactor.redact(&text).into_owned();
                let chain: Vec<String> = chain(&error).into_iter().map(redact).collect();
                let failed = ModelFailed {
                    call: call.call,
                    reason: error.code().into(),
                    message: chain.first().map_or("", String::as_str).into(),
                    chain,
                    attempts: record.attempt(),
                };
                self.model_error = Some(error);
                failed.into()
            }
        };
        self.step(machine, [last, Input::answer(now, call.id, answer)]).await
    }

    /// Did the retry stack give up only because the budget allows no further attempt?
    fn cut_short_by_budget(&self, error: &ProviderError, max_attempts: Option<u32>) -> bool {
        let ProviderError::Exhausted { attempts, .. } = error else { return false };
        max_attempts.is_some_and(|max| *attempts >= max && max < self.agent.retry_attempts)
    }

    /// Decides which calls of a batch may run, and answers the others.
    fn admit(&mut self, machine: &Machine, batch: &ToolBatch) -> Vec<Input> {
        let mut execution = machine.usage().tool_calls;
        let last = execution.saturating_add(batch.max_executions);
        let mut facts = Vec::with_capacity(batch.calls.len());
        for call in batch.calls.iter() {
            let arguments = call.arguments.clone();
            let (tools, grants) = (&self.agent.tools, &self.agent.grants);
            // What a call needs is asked of the tool's own code.
            let admit = AssertUnwindSafe(|| tools.admit(&call.name, arguments, grants));
            let admitted = std::panic::catch_unwind(admit)
                .unwrap_or_else(|panic| Err(ToolError::Panicked(panic_text(&*panic))));
            let admitted = admitted.and_then(|admitted| {
                match machine.repeated_failure(&call.name, &admitted.arguments) {
                    Some((code, count)) => Err(ToolError::repeated_failure(code, count)),
                    None if execution >= last => Err(ToolError::Cancelled),
                    None => Ok(admitted),
                }
            });
            let fact = match admitted {
                Ok(admitted) => {
                    execution += 1;
                    let requested = ToolRequested {
                        call_id: call.id.clone(),
                        tool: Arc::clone(&call.name),
                        arguments: admitted.arguments.clone(),
                        execution,
                    };
                    self.admitted.insert(call.id.clone(), admitted);
                    requested.into()
                }
                Err(error) => {
                    let text = match error.kind() {
                        ToolError::NotFound(name) => self.agent.tools.missing_text(name),
                        ToolError::Cancelled => BUDGET_CANCELLED.to_owned(),
                        _ => failed_text(&call.name, &error),
                    };
                    failing(&self.agent, &self.run, &self.session, &call.id, &call.name, 0)
                        .respond(&error, &text)
                }
            };
            facts.push(self.fact(fact));
        }
        facts
    }

    /// Starts queued executions while there are free places.
    fn start_tools(&mut self) {
        let places =
            usize::try_from(self.agent.definition.limits.max_concurrent_tools).unwrap_or(1);
        while self.running.len() < places
            && let Some(run) = self.queued.pop_front()
        {
            let Some(admitted) = self.admitted.remove(&run.call_id) else { continue };
            self.acted |= !admitted.tool().spec().idempotent;
            let (agent, name, session) =
                (Arc::clone(&self.agent), self.run.clone(), self.session.clone());
            let noted = self.noted.clone();
            self.running.push(Box::pin(run_tool(agent, name, session, run, admitted, noted)));
        }
    }

    fn end(self, machine: &Machine, finish: Finish) -> Result<RunOutcome, RunFailure> {
        match finish {
            Finish::Stopped { stop, output } => Ok(RunOutcome {
                run_id: self.run,
                session: self.session,
                stop,
                output,
                usage: machine.usage(),
                transcript: machine.transcript().clone(),
            }),
            Finish::Failed(cause) => {
                let mut driver = self;
                let error = driver.error_of(cause);
                Err(driver.failure(machine, error))
            }
            other => {
                let error = internal(format!("unknown end: {other:?}"));
                Err(self.failure(machine, error))
            }
        }
    }

    /// Returns the live error for what the machine knows as data.
    fn error_of(&mut self, cause: FailureCause) -> AgentError {
        let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        match cause {
            FailureCause::Model { reason, .. } => match self.model_error.take() {
                Some(error) => AgentError::Llm(error),
                None => internal(format!("no live error for {reason}")),
            },
            FailureCause::InputInvalid(why) => AgentError::InputValidation(why.to_owned()),
            FailureCause::InvalidResponse(why) => {
                AgentError::Llm(ProviderError::InvalidResponse(why.to_owned()))
            }
            FailureCause::ContextExceeded => AgentError::Llm(ProviderError::context_overflow(
                "the context was used up while the model answered",
            )),
            FailureCause::Loop { signature, .. } => AgentError::loop_detected(&*signature),
            FailureCause::Stagnation { text_hash, count: times, limit } => {
                AgentError::stagnation(&*text_hash, count(times), count(limit))
            }
            FailureCause::MaxIterations(max) => AgentError::MaxIterationsReached(count(max)),
            FailureCause::ParallelToolLimit { count: asked, limit } => {
                AgentError::parallel_tool_limit(asked, count(limit))
            }
            other => internal(format!("unknown cause: {other:?}")),
        }
    }

    fn failure(self, machine: &Machine, error: AgentError) -> RunFailure {
        tracing::warn!(code = error.code(), error = %layer0::failure::Chain(&error), "run failed");
        RunFailure {
            run_id: self.run,
            session: self.session,
            error,
            usage: self.usage,
            transcript: machine.transcript().clone(),
            partial: Arc::clone(machine.last_text()),
            acted: self.acted,
        }
    }

    fn failed_to_start(self, error: AgentError) -> RunFailure {
        RunFailure {
            run_id: self.run,
            session: self.session,
            error,
            usage: Usage::default(),
            transcript: layer0::message::Transcript::default(),
            partial: Arc::default(),
            acted: false,
        }
    }
}

pub(crate) fn failing<'a>(
    agent: &'a Inner,
    run: &'a RunId,
    session: &'a SessionId,
    call_id: &'a CallId,
    tool: &'a Arc<str>,
    duration_ms: u64,
) -> Failing<'a> {
    let at = agent.clock.now();
    Failing { run, session, call_id, tool, redactor: &agent.redactor, at, duration_ms }
}

/// Sleeps until a moment; for ever without one.
fn sleep_until(clock: &Arc<dyn Clock>, deadline: Option<Timestamp>) -> ClockFuture {
    match deadline {
        Some(deadline) => clock.sleep(deadline.since(clock.now())),
        None => Box::pin(std::future::pending()),
    }
}

fn internal(what: String) -> AgentError {
    AgentError::Internal(what.into())
}
