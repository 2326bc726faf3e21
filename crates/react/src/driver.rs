//! One run: feeds the machine, appends what it decides, then acts.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use clock::{BoxFuture as ClockFuture, Clock};
use event_log::RunWriter;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use layer0::event::{EventKind, RunStarted, SignalReceived};
use layer0::failure::Failure;
use layer0::id::{CallId, RunId, SessionId};
use layer0::usage::Usage;
use layer0::{Timestamp, ToolSpec};
use provider::ProviderError;
use react_machine::{CANCEL, Effect, FailureCause, Finish, Input, Machine, Output, ToolRun};
use serde_json::Value;
use tokio::sync::mpsc;
use tool::Admitted;
use tracing::Instrument;

use crate::agent::{Inner, RunRequest, new_run_id, new_session_id};
use crate::error::{AgentError, RunFailure};
use crate::failing::Failing;
use crate::live::Live;
use crate::memory::{Bounded, MemoryEntry, MemoryQuery};
use crate::outcome::RunOutcome;
use crate::tool_run::Note;

/// How many notes of running tools wait for the driver.
const NOTES: usize = 16;

/// Facts a tool execution came to.
type ToolDone = Pin<Box<dyn Future<Output = Vec<Input>> + Send>>;

/// Drives one run. Effects are performed here and nowhere else, each after the append of the
/// decision that asked for it, and each comes back as facts.
pub(crate) struct Driver {
    pub(crate) agent: Arc<Inner>,
    pub(crate) run: RunId,
    pub(crate) session: SessionId,
    pub(crate) request: RunRequest,
    pub(crate) writer: RunWriter,
    pub(crate) effects: VecDeque<Effect>,
    pub(crate) finish: Option<Finish>,
    /// Calls that were admitted and wait for their effect.
    pub(crate) admitted: BTreeMap<CallId, Admitted>,
    /// Executions that wait for a free place.
    pub(crate) queued: VecDeque<ToolRun>,
    pub(crate) running: FuturesUnordered<ToolDone>,
    /// What running tools have to have in the log before they go on.
    pub(crate) notes: mpsc::Receiver<Note>,
    pub(crate) noted: mpsc::Sender<Note>,
    /// The provider's error with its sources; the log has it as data.
    pub(crate) model_error: Option<ProviderError>,
    /// Did a tool that is not safe to repeat run?
    pub(crate) acted: bool,
    /// What was used as far as the log has it; the machine is ahead when an append fails.
    pub(crate) usage: Usage,
    pub(crate) tools: Arc<[ToolSpec]>,
}

impl Driver {
    pub(crate) fn new(agent: Arc<Inner>, request: RunRequest) -> Self {
        let now = agent.clock.now();
        let run = request.run.clone().unwrap_or_else(|| new_run_id(now));
        let session = request.session.clone().unwrap_or_else(|| new_session_id(now));
        let (noted, notes) = mpsc::channel(NOTES);
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
                Some(Effect::ReadMemory { input }) => {
                    let query = MemoryQuery { session: self.session.clone(), input };
                    let fact = match self.memory() {
                        Some(memory) => memory.read(query).await,
                        None => return Err(internal("there is no memory to read".to_owned())),
                    };
                    self.step(machine, [self.fact(fact)]).await?;
                }
                Some(Effect::WriteMemory { input, output }) => {
                    let (session, run) = (self.session.clone(), self.run.clone());
                    let entry = MemoryEntry { session, run, input, output };
                    let fact = match self.memory() {
                        Some(memory) => memory.write(entry).await,
                        None => return Err(internal("there is no memory to write".to_owned())),
                    };
                    self.step(machine, [self.fact(fact)]).await?;
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
    pub(crate) async fn step(
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
    pub(crate) async fn tick(&mut self, machine: &mut Machine) -> Result<(), AgentError> {
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

    fn memory(&self) -> Option<Bounded<'_>> {
        let agent = &self.agent;
        Some(Bounded {
            memory: agent.memory.as_deref()?,
            limit: Duration::from_millis(agent.definition.limits.memory_timeout_ms),
            clock: &agent.clock,
            redactor: &agent.redactor,
        })
    }

    /// Drops what is in flight and tells the machine, which answers every open call.
    pub(crate) async fn cancel(&mut self, machine: &mut Machine) -> Result<(), AgentError> {
        self.drop_in_flight();
        let signal = SignalReceived { name: CANCEL.into(), data: Value::Null };
        self.step(machine, [self.fact(signal)]).await
    }

    fn drop_in_flight(&mut self) {
        self.effects.clear();
        self.queued.clear();
        self.running.clear();
    }

    pub(crate) fn fact(&self, fact: impl Into<EventKind>) -> Input {
        Input::fact(self.agent.clock.now(), fact)
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
pub(crate) fn sleep_until(clock: &Arc<dyn Clock>, deadline: Option<Timestamp>) -> ClockFuture {
    match deadline {
        Some(deadline) => clock.sleep(deadline.since(clock.now())),
        None => Box::pin(std::future::pending()),
    }
}

fn internal(what: String) -> AgentError {
    AgentError::Internal(what.into())
}
