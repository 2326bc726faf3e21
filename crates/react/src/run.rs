//! One run: feeds events to the machine, and starts the effects that it decides.

mod admission;
mod admit;
mod approvals;
mod attempts;
mod below;
mod decisions;
mod dispatches;
mod executions;
pub(crate) mod finish;
mod late;
mod ledger;
mod listed;
mod model;
mod pauses;
pub(crate) mod resume;
mod runs_below;
pub(crate) mod session;
mod settle;
mod signals;
mod sources;
pub(crate) mod start;
mod stop;
mod tools;

use std::sync::Arc;

use backstop_error_store::Hold;
use backstop_event_log::{InboxMessage, Seed};
use backstop_react_machine::{
    CANCEL, CheckedDefinition, Finish, HookPoint, Machine, MachineAction,
};
use layer0::Timestamp;
use layer0::id::{RunId, SessionId};

use crate::agent::inner::AgentInner;
use crate::effect::Effects;
use crate::error::{AgentError, RunFailure, internal};
use crate::feed::StreamFeed;
use crate::hook::HookContext;
use crate::journal::{AnyJournal, Fact, Step, StepEnd, StepId};
use crate::outcome::RunOutcome;

use admission::{Admission, AdmissionVerdict};
use approvals::Approvals;
use ledger::{Readers, RunLedger};
use listed::Sources;
use model::PendingModelCall;
use runs_below::ChildRuns;
use tools::{RunningExecution, Tools};

/// A run with at least its first event recorded.
pub(crate) struct Run {
    agent: Arc<AgentInner>,
    definition: CheckedDefinition,
    context: HookContext,
    /// The sessions whose stored texts the run may read.
    sessions: Arc<[SessionId]>,
    /// Number of dispatches between the run and its root.
    depth: u32,
    /// The root run of this run's chain of callers.
    root: RunId,
    effects: Arc<Effects>,
    ledger: RunLedger,
    /// The steps in flight.
    in_flight: Vec<(StepId, StepPurpose)>,
    asking: PendingModelCall,
    tools: Tools,
    /// Empty vector of the previous batch, reused by the next one.
    unused_verdicts: Vec<AdmissionVerdict>,
    approvals: Approvals,
    inbox: InboxState,
    below: ChildRuns,
    sources: Sources,
    /// Whether a tool that is not safe to repeat was run.
    acted: bool,
}

/// The parts that a run is made of.
struct RunParts {
    agent: Arc<AgentInner>,
    definition: CheckedDefinition,
    context: HookContext,
    machine: Machine,
    journal: AnyJournal,
    effects: Arc<Effects>,
    /// Feed of the run's stream; `None` without a reader.
    feed: Option<Arc<StreamFeed>>,
}

/// Purpose of a step in flight.
enum StepPurpose {
    Admission(Box<Admission>),
    Approval,
    Attempt,
    Execution(RunningExecution),
    /// The wait that was reported to the caller.
    Wait,
    /// The request to the caller for more budget.
    More,
    /// A probe of a call that has its answer already.
    LateProbe,
    /// Hooks of a pause, or the memory.
    Pause,
    /// Hooks that a signal is shown to.
    Signal,
}

/// State of the run's inbox.
#[derive(Default)]
struct InboxState {
    /// Rows that arrived while steps were being stopped.
    unread: Vec<InboxMessage>,
    /// Whether the caller in this process stopped the run.
    is_cancelled: bool,
    /// Whether it was empty when last read, with no fact since.
    is_empty: bool,
}

impl Run {
    async fn new(parts: RunParts) -> Self {
        let RunParts { agent, definition, context, machine, mut journal, effects, feed } = parts;
        let at = journal.now().await;
        let seed = Seed::new(journal.new_id().await.as_str());
        let caller = effects.caller().cloned();
        let readers = Readers { agent: Arc::clone(&agent), feed, caller };
        Self {
            agent,
            definition,
            sessions: Arc::from([context.session.clone()]),
            root: context.run.clone(),
            context,
            depth: 0,
            effects,
            ledger: RunLedger::new(Box::new(machine), journal, readers, seed, at),
            in_flight: Vec::new(),
            asking: PendingModelCall::default(),
            tools: Tools::default(),
            unused_verdicts: Vec::new(),
            approvals: Approvals::default(),
            inbox: InboxState::default(),
            below: ChildRuns::default(),
            sources: Sources::default(),
            acted: false,
        }
    }

    /// Performs the run until it is over, or until it waits for people outside this process.
    pub(crate) async fn go(mut self: Box<Self>) -> Result<RunOutcome, RunFailure> {
        let held = self.agent.stores.hold(&self.sessions);
        let result = self.perform(held).await;
        let below = match &result {
            Ok(None) => self.approvals_below().await,
            _ => Vec::new(),
        };
        self.finish(result, below)
    }

    async fn perform(&mut self, _held: Vec<Hold>) -> Result<Option<Finish>, AgentError> {
        let mut facts = Vec::new();
        loop {
            while let Some(effect) = self.ledger.next_effect() {
                self.begin(effect).await?;
            }
            if let Some(finish) = self.ledger.take_finish() {
                return Ok(Some(finish));
            }
            self.settle_approvals();
            self.expire_approvals();
            match self.is_idle() {
                true if self.rest().await? => return Ok(None),
                true => {}
                false => self.go_on(),
            }
            self.ledger.set_timer(self.next_wake());
            self.ledger.next(&mut facts).await?;
            for fact in facts.drain(..) {
                self.take(fact).await?;
            }
            self.take_unread().await?;
        }
    }

    /// Begins an effect that the machine decided and whose record is durable.
    async fn begin(&mut self, effect: MachineAction) -> Result<(), AgentError> {
        match effect {
            // A call that was replaced by another one meanwhile is dropped.
            MachineAction::CallModel(call) if !self.ledger.machine().is_asking(call.id) => Ok(()),
            MachineAction::CallModel(call) => {
                self.note_changed_tools().await?;
                // The append may have used up the budget.
                if self.ledger.machine().is_asking(call.id) {
                    self.ask_model(call);
                }
                Ok(())
            }
            MachineAction::AdmitTools(batch) => self.admit(batch).await,
            MachineAction::AskApproval(approval) => {
                self.ask_approval(approval);
                Ok(())
            }
            MachineAction::RunHooks(pause) => {
                self.start(Step::Hooks(pause), StepPurpose::Pause);
                Ok(())
            }
            MachineAction::ReadMemory { input } => {
                self.start(Step::ReadMemory(input), StepPurpose::Pause);
                Ok(())
            }
            MachineAction::WriteMemory { input, output } => {
                self.start(Step::WriteMemory { input, output }, StepPurpose::Pause);
                Ok(())
            }
            MachineAction::AskBudget { given } => {
                self.ask_budget(given);
                Ok(())
            }
            // A call that was settled meanwhile has its answer.
            MachineAction::Probe { call_id, .. } | MachineAction::Rerun { call_id, .. }
                if !self.ledger.machine().is_running(&call_id) =>
            {
                Ok(())
            }
            MachineAction::Rerun { id, call_id } => self.rerun(id, &call_id).await,
            MachineAction::Probe { id, call_id } => self.probe(id, &call_id),
            MachineAction::RunTool(run) => {
                self.tools.queue(run);
                self.start_tools().await
            }
            other => Err(internal(format!("unknown effect: {other:?}"))),
        }
    }

    /// Handles one fact.
    async fn take(&mut self, fact: Fact) -> Result<(), AgentError> {
        self.inbox.is_empty = false;
        match fact {
            Fact::Ended(id, end) => match self.take_in_flight(id) {
                Some(of) => self.take_end(of, end).await,
                None => Ok(()),
            },
            Fact::Timer => self.wake().await,
            Fact::Inbox(rows) => {
                self.inbox.is_empty = rows.is_empty();
                self.take_rows(rows).await
            }
            Fact::Cancelled => {
                self.inbox.is_cancelled = true;
                self.take_unread().await
            }
            Fact::Late(late) => {
                self.tools.keep_late(late);
                self.record_late().await
            }
            Fact::Signal(signal) if signal.name == CANCEL => {
                self.inbox.is_cancelled = true;
                self.take_unread().await
            }
            Fact::Signal(signal) => self.handle_signal(signal).await,
            Fact::Asked(id, ask) => self.handle_ask(id, ask).await,
        }
    }

    async fn take_end(&mut self, of: StepPurpose, end: StepEnd) -> Result<(), AgentError> {
        match (of, end) {
            (StepPurpose::Attempt, StepEnd::Attempt(end)) => self.attempt_ended(end).await,
            (StepPurpose::Execution(work), StepEnd::Execution(end)) => {
                self.execution_ended(work, end).await
            }
            (StepPurpose::Signal, StepEnd::Hooks(notes, stop)) => {
                self.signal_shown(notes.0, stop).await
            }
            (StepPurpose::Pause, StepEnd::Hooks(notes, stop)) => {
                self.hooks_ended(notes.0, stop).await
            }
            (StepPurpose::Admission(admission), StepEnd::Gates(gated)) => {
                self.gates_answered(*admission, gated).await
            }
            (StepPurpose::Admission(admission), StepEnd::Observers(observed)) => {
                self.handle_observations(*admission, observed).await
            }
            (StepPurpose::Approval, StepEnd::Approval(approval, said)) => {
                self.approver_answered(*approval, said).await
            }
            (StepPurpose::Approval, StepEnd::Expiry(approval, is_sent)) => {
                self.approval_expired(&approval, is_sent).await
            }
            (StepPurpose::Pause, StepEnd::Memory(fact)) => {
                let fact = self.ledger.fact(fact.0);
                self.ledger.step([fact]).await
            }
            (StepPurpose::Wait, StepEnd::Left) => {
                self.below.leaves();
                Ok(())
            }
            (StepPurpose::More, StepEnd::More(more)) => self.given_more(more).await,
            (_, StepEnd::Stopped) => Ok(()),
            _ => Err(internal("a step ended as another one does".to_owned())),
        }
    }

    /// Continues the work that is due now.
    async fn wake(&mut self) -> Result<(), AgentError> {
        let now = self.ledger.at();
        if self.ledger.machine().deadline().is_some_and(|deadline| deadline <= now) {
            return self.time_is_up().await;
        }
        if self.wakes_from_parking().is_some_and(|until| until <= now) {
            return self.unpark().await;
        }
        if let Some(attempt) = self.asking.due(now) {
            self.start(Step::Attempt(attempt), StepPurpose::Attempt);
        }
        self.start_tools().await
    }

    /// Returns the earliest time at which the run must act without a fact from outside.
    fn next_wake(&self) -> Option<Timestamp> {
        let waits = self.asking.wakes_at().into_iter().chain(self.tools.wakes_at());
        let waits = waits.chain(self.ledger.machine().deadline()).chain(self.next_expiry());
        waits.chain(self.wakes_from_parking()).min()
    }

    fn start(&mut self, step: Step, of: StepPurpose) -> StepId {
        let id = self.ledger.start(step);
        self.in_flight.push((id, of));
        id
    }

    fn take_in_flight(&mut self, id: StepId) -> Option<StepPurpose> {
        let place = self.in_flight.iter().position(|(other, _)| *other == id)?;
        Some(self.in_flight.swap_remove(place).1)
    }

    /// Returns whether nothing is in flight but waits for child runs or people.
    fn is_idle(&self) -> bool {
        let waits = |of: &StepPurpose| match of {
            StepPurpose::Execution(work) => self.waits_below(work),
            StepPurpose::Approval | StepPurpose::Wait => true,
            _ => false,
        };
        self.in_flight.iter().all(|(_, of)| waits(of))
            && self.asking.is_idle()
            && self.tools.is_idle()
    }

    /// Returns whether the last hooks are called. Nothing stops a run that is ending.
    fn is_ending(&self) -> bool {
        self.ledger.machine().paused_at() == Some(HookPoint::RunEnd) || self.ledger.is_over()
    }
}

#[cfg(test)]
mod tests;
