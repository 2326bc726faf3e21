//! One run: feeds the machine, appends what it decides, then acts.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use event_log::{Claim, RunWriter};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use layer0::Timestamp;
use layer0::event::{AgentRecord, EventKind, RunResumed};
use layer0::id::{CallId, RunId, SessionId};
use layer0::usage::Usage;
use provider::ProviderError;
use react_machine::{AgentDefinition, Effect, Finish, Input, Machine, Output, Pause, ToolRun};
use tokio::sync::mpsc;
use tool::Admitted;
use tracing::Instrument;

use crate::agent::{Inner, RunRequest, new_run_id, new_session_id};
use crate::alarm::Alarm;
use crate::deciding::Asked;
use crate::error::{AgentError, RunFailure};
use crate::failing::Failing;
use crate::hook::HookError;
use crate::live::Live;
use crate::memory::{Bounded, MemoryEntry, MemoryQuery};
use crate::outcome::RunOutcome;
use crate::tool_run::{Note, ToolDone};

/// How many notes wait for the driver.
const NOTES: usize = 16;

/// How often decisions that other processes made are looked for while a run has other things to do.
const LOOK_FOR_DECISIONS: Duration = Duration::from_millis(500);

/// A tool at work.
type Running = Pin<Box<dyn Future<Output = ToolDone> + Send>>;

/// Drives one run. Effects are performed here and nowhere else, each after the append of the
/// decision that asked for it, and each comes back as facts.
pub(crate) struct Driver {
    pub(crate) agent: Arc<Inner>,
    pub(crate) definition: Arc<AgentDefinition>,
    pub(crate) record: AgentRecord,
    /// The right to write to the run.
    pub(crate) claim: Option<Claim>,
    /// The run whose conversation this one goes on with.
    pub(crate) follows: Option<RunId>,
    /// When the run starts at the earliest.
    pub(crate) not_before: Option<Timestamp>,
    /// What executions before this process were asked for, by call.
    pub(crate) executions: BTreeMap<CallId, ToolRun>,
    /// Is written before the first decision of a person, when the run waited for it.
    pub(crate) resumed_by: Option<RunResumed>,
    /// The conversations whose stored texts the run may read.
    pub(crate) sessions: Arc<[SessionId]>,
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
    pub(crate) running: FuturesUnordered<Running>,
    /// Questions to people in this process.
    pub(crate) asked: FuturesUnordered<Asked>,
    /// What running tools and a model call have to have in the log before they go on.
    pub(crate) notes: mpsc::Receiver<Note>,
    pub(crate) noted: mpsc::Sender<Note>,
    /// The provider's error with its sources; the log has it as data.
    pub(crate) model_error: Option<ProviderError>,
    /// The error of the hook that stopped the run; the log has it as data.
    pub(crate) hook_error: Option<HookError>,
    /// Are the last hooks called? Nothing stops a run that is ending.
    pub(crate) ending: bool,
    /// Did a tool that is not safe to repeat run?
    pub(crate) acted: bool,
    /// What was used as far as the log has it; the machine is ahead when an append fails.
    pub(crate) usage: Usage,
    pub(crate) alarm: Alarm,
}

impl Driver {
    pub(crate) fn new(agent: Arc<Inner>, request: RunRequest) -> Self {
        let now = agent.clock.now();
        let run = request.run.clone().unwrap_or_else(|| new_run_id(now));
        let session = request.session.clone().unwrap_or_else(|| new_session_id(now));
        let (noted, notes) = mpsc::channel(NOTES);
        Self {
            writer: match &agent.log {
                Some(log) => RunWriter::new(Arc::clone(log), run.clone()),
                None => RunWriter::without_log(run.clone()),
            },
            run,
            sessions: Arc::from([session.clone()]),
            session,
            request,
            effects: VecDeque::new(),
            finish: None,
            admitted: BTreeMap::new(),
            queued: VecDeque::new(),
            running: FuturesUnordered::new(),
            asked: FuturesUnordered::new(),
            notes,
            noted,
            model_error: None,
            hook_error: None,
            ending: false,
            acted: false,
            usage: Usage::default(),
            alarm: Alarm::default(),
            claim: None,
            not_before: None,
            follows: None,
            executions: BTreeMap::new(),
            resumed_by: None,
            definition: Arc::clone(&agent.definition),
            record: agent.record(),
            agent,
        }
    }

    pub(crate) async fn run(self: Box<Self>) -> Result<RunOutcome, RunFailure> {
        let span = tracing::info_span!("run", run = %self.run, agent = %self.agent.definition.name);
        self.drive().instrument(span).await
    }

    async fn drive(mut self: Box<Self>) -> Result<RunOutcome, RunFailure> {
        let machine = match self.claim_and_join().await {
            Ok(machine) => machine,
            Err(error) => return Err(self.failed_to_start(error)),
        };
        match self.start(machine).await {
            Ok(machine) => self.finish_up(machine).await,
            Err((machine, error)) => Err(self.failure(&machine, error)),
        }
    }

    /// Performs effects until the run is over or waits.
    pub(crate) async fn finish_up(
        mut self: Box<Self>,
        mut machine: Box<Machine>,
    ) -> Result<RunOutcome, RunFailure> {
        match self.perform_all(&mut machine).await {
            Ok(Some(finish)) => self.end(&machine, finish),
            Ok(None) => Ok(self.suspend(&machine)),
            Err(error) => Err(self.failure(&machine, error)),
        }
    }

    /// Performs effects until the machine finishes; `None` when it waits for people that are not
    /// here.
    async fn perform_all(&mut self, machine: &mut Machine) -> Result<Option<Finish>, AgentError> {
        loop {
            if let Some(finish) = self.finish.take() {
                return Ok(Some(finish));
            }
            if !self.ending && self.request.cancellation.is_cancelled() {
                self.cancel(machine).await?;
                continue;
            }
            match self.effects.pop_front() {
                // One that was asked anew meanwhile is forgotten.
                Some(Effect::CallModel(call)) if !machine.is_asking(call.id) => {}
                Some(Effect::CallModel(call)) => self.call_model(machine, call).await?,
                Some(Effect::AdmitTools(batch)) => self.admit(machine, batch).await?,
                Some(Effect::AskApproval(approval)) => self.ask_approval(approval),
                Some(Effect::RunHooks(pause)) => self.pause(machine, pause).await?,
                Some(Effect::ReadMemory { input }) => {
                    let query = MemoryQuery { session: self.session.clone(), input };
                    let agent = Arc::clone(&self.agent);
                    let memory = memory(&agent)?;
                    if let Some(fact) = self.unless_stopped(machine, memory.read(query)).await? {
                        self.step(machine, [self.fact(fact)]).await?;
                    }
                }
                Some(Effect::WriteMemory { input, output }) => {
                    let (session, run) = (self.session.clone(), self.run.clone());
                    let entry = MemoryEntry { session, run, input, output };
                    let agent = Arc::clone(&self.agent);
                    let memory = memory(&agent)?;
                    if let Some(fact) = self.unless_stopped(machine, memory.write(entry)).await? {
                        self.step(machine, [self.fact(fact)]).await?;
                    }
                }
                Some(Effect::Rerun { id, call_id }) => self.rerun(machine, id, &call_id).await?,
                Some(Effect::RunTool(run)) => {
                    self.queued.push_back(run);
                    self.start_tools();
                }
                Some(other) => return Err(internal(format!("unknown effect: {other:?}"))),
                None if self.running.is_empty() && self.asked.is_empty() => {
                    if !machine.is_waiting() {
                        return Err(internal("the machine waits for nothing".to_owned()));
                    }
                    if !self.take_decisions(machine).await? {
                        return Ok(None);
                    }
                }
                None => {
                    let clock = &self.agent.clock;
                    let asks = machine.open_approvals().next().is_some();
                    let mut done = tokio::select! {
                        biased;
                        () = self.request.cancellation.cancelled() => continue,
                        () = self.alarm.rings_at(machine.deadline(), clock) => {
                            self.tick(machine).await?;
                            continue;
                        }
                        Some(note) = self.notes.recv() => {
                            self.take_note(machine, note).await?;
                            continue;
                        }
                        Some((approval, decision)) = self.asked.next() => {
                            self.decided(machine, approval, decision).await?;
                            continue;
                        }
                        Some(done) = self.running.next() => done,
                        () = async { clock.sleep(LOOK_FOR_DECISIONS).await }, if asks => {
                            self.take_decisions(machine).await?;
                            continue;
                        }
                    };
                    self.start_tools();
                    self.hook_error = done.rejected.take();
                    self.step(machine, done.inputs()).await?;
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
            self.feed(machine, fact)?;
        }
        self.commit(machine).await
    }

    /// Appends what something at work has to have in the log, and lets it go on.
    pub(crate) async fn take_note(
        &mut self,
        machine: &mut Machine,
        note: Note,
    ) -> Result<(), AgentError> {
        let (note, logged) = *note;
        self.step(machine, [note]).await?;
        // Whoever waited may be gone.
        let _ = logged.send(());
        Ok(())
    }

    /// Feeds a fact; nothing is appended yet.
    pub(crate) fn feed(&mut self, machine: &mut Machine, fact: Input) -> Result<(), AgentError> {
        machine.handle(fact).map_err(|misuse| AgentError::Internal(misuse.into()))?;
        self.drain(machine);
        Ok(())
    }

    /// Takes what the machine wants; at the end of a run, drops what is in flight.
    pub(crate) fn drain(&mut self, machine: &mut Machine) {
        loop {
            match machine.poll() {
                Output::Append(entry) => {
                    self.writer.stage(entry.at, entry.actor, entry.caused_by, entry.kind);
                }
                Output::Perform(effect) => {
                    if matches!(effect, Effect::RunHooks(Pause::RunEnd(_))) {
                        self.ending = true;
                        self.drop_in_flight();
                    }
                    self.effects.push_back(effect);
                }
                Output::Finish(finish) => {
                    self.drop_in_flight();
                    return self.finish = Some(finish);
                }
                _ => return,
            }
        }
    }

    pub(crate) async fn commit(&mut self, machine: &Machine) -> Result<(), AgentError> {
        for event in self.writer.commit().await? {
            tracing::debug!(seq = event.seq, event = event.kind.event_type(), "logged");
            self.agent.hub.send(|| Live::Logged(Arc::new(event)));
        }
        self.usage = machine.usage();
        Ok(())
    }

    pub(crate) fn fact(&self, fact: impl Into<EventKind>) -> Input {
        Input::fact(self.agent.clock.now(), fact)
    }
}

fn memory(agent: &Inner) -> Result<Bounded<'_>, AgentError> {
    let Some(memory) = agent.memory.as_deref() else {
        return Err(internal("there is no memory".to_owned()));
    };
    let limit = Duration::from_millis(agent.definition.limits.memory_timeout_ms);
    Ok(Bounded { memory, limit, clock: &agent.clock, redactor: &agent.redactor })
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

pub(crate) fn internal(what: String) -> AgentError {
    AgentError::Internal(what.into())
}
