//! The machine and its journal. Decisions of the machine are returned only after they are recorded.

use std::collections::VecDeque;
use std::sync::Arc;

use backstop_event_log::Seed;
use backstop_react_machine::{
    CANCEL, EffectId, Finish, HookPoint, Machine, MachineAction, MachineInput, MachineOutput,
    Misuse,
};
use layer0::Timestamp;
use layer0::event::{Event, EventKind};
use layer0::id::RunId;
use layer0::message::Message;
use layer0::operator::Caller;
use layer0::usage::Usage;

use crate::agent::inner::AgentInner;
use crate::error::AgentError;
use crate::feed::StreamFeed;
use crate::journal::{AnyJournal, AppendContents, AskId, Fact, Step, StepId, StepReply};
use crate::live::Live;

/// Steps a machine through a run, each step with its append.
pub(super) struct RunLedger {
    machine: Box<Machine>,
    journal: AnyJournal,
    readers: Readers,
    /// Time of the last fact.
    at: Timestamp,
    /// Decisions to record, and the rows of the inbox that the append takes.
    batch: AppendContents,
    decided: VecDeque<MachineAction>,
    /// Decisions that are recorded.
    effects: VecDeque<MachineAction>,
    finish: Option<Finish>,
    /// Recorded usage; the machine is ahead if an append fails.
    usage: Usage,
}

/// Receivers of recorded events.
pub(super) struct Readers {
    pub(super) agent: Arc<AgentInner>,
    pub(super) feed: Option<Arc<StreamFeed>>,
    /// The run's caller.
    pub(super) caller: Option<Arc<dyn Caller>>,
}

impl RunLedger {
    pub(super) fn new(
        machine: Box<Machine>,
        journal: AnyJournal,
        readers: Readers,
        seed: Seed,
        at: Timestamp,
    ) -> Self {
        let mut ledger = Self {
            machine,
            journal,
            readers,
            at,
            batch: AppendContents::new(seed),
            decided: VecDeque::new(),
            effects: VecDeque::new(),
            finish: None,
            usage: Usage::default(),
        };
        // The last decisions of a machine rebuilt from a record are recorded with its next step.
        ledger.drain();
        ledger
    }

    /// Sets the usage of a resumed run.
    pub(super) fn having_used(mut self, usage: Usage) -> Self {
        self.usage = usage;
        self
    }

    pub(super) const fn machine(&self) -> &Machine {
        &self.machine
    }

    pub(super) fn provide_earlier(&mut self, messages: Vec<Arc<Message>>) {
        self.machine.provide_earlier(messages);
    }

    /// Returns the time of the last fact.
    pub(super) const fn at(&self) -> Timestamp {
        self.at
    }

    /// Returns the recorded usage.
    pub(super) const fn usage(&self) -> Usage {
        self.usage
    }

    /// Returns the input of a fact at the current time.
    pub(super) fn fact(&self, fact: impl Into<EventKind>) -> MachineInput {
        MachineInput::fact(self.at, fact)
    }

    /// Returns the input of an effect's answer at the current time.
    pub(super) fn answer(&self, effect: EffectId, fact: impl Into<EventKind>) -> MachineInput {
        MachineInput::answer(self.at, effect, fact)
    }

    /// Takes a row of the inbox with the next append.
    pub(super) fn take_row(&mut self, row: u64) {
        self.batch.taken.push(row);
    }

    /// Feeds facts, and records them together with the machine's decisions, in one append.
    pub(super) async fn step(
        &mut self,
        facts: impl IntoIterator<Item = MachineInput>,
    ) -> Result<(), AgentError> {
        self.change(|machine| facts.into_iter().try_for_each(|fact| machine.handle(fact))).await
    }

    /// Feeds facts as [`Self::step`] does, but none after the fact that ends the run. Decisions from before a
    /// cancellation are not begun any more.
    pub(super) async fn step_while_open(
        &mut self,
        facts: impl IntoIterator<Item = MachineInput>,
    ) -> Result<(), AgentError> {
        for fact in facts {
            if self.machine.is_over() {
                break;
            }
            let is_cancelled =
                matches!(&fact.fact, EventKind::SignalReceived(signal) if &*signal.name == CANCEL);
            // Nothing stops a run that is ending.
            if is_cancelled && self.machine.paused_at() != Some(HookPoint::RunEnd) {
                self.decided.clear();
            }
            self.machine.handle(fact).map_err(|misuse| AgentError::Internal(misuse.into()))?;
            self.drain();
        }
        self.record().await
    }

    /// Advances the machine's clock, and records the resulting decisions.
    pub(super) async fn tick(&mut self) -> Result<(), AgentError> {
        let at = self.at;
        self.change(|machine| {
            machine.tick(at);
            Ok(())
        })
        .await
    }

    /// Changes the machine, and records the resulting decisions.
    pub(super) async fn change(
        &mut self,
        change: impl FnOnce(&mut Machine) -> Result<(), Misuse>,
    ) -> Result<(), AgentError> {
        change(&mut self.machine).map_err(|misuse| AgentError::Internal(misuse.into()))?;
        self.drain();
        self.record().await
    }

    /// Records the decisions of the machine, and makes their effects available.
    pub(super) async fn record(&mut self) -> Result<(), AgentError> {
        self.journal.append(&mut self.batch).await?;
        for event in self.batch.written.drain(..) {
            self.readers.tell(event);
        }
        self.effects.append(&mut self.decided);
        self.usage = self.machine.usage();
        if let Some(caller) = &self.readers.caller {
            caller.report_usage(self.usage);
        }
        Ok(())
    }

    fn drain(&mut self) {
        // A finished run may have been reopened.
        self.finish = None;
        loop {
            match self.machine.poll() {
                MachineOutput::Append(entry) => self.batch.entries.push(entry),
                MachineOutput::Perform(effect) => self.decided.push_back(effect),
                MachineOutput::Finish(finish) => return self.finish = Some(finish),
                _ => return,
            }
        }
    }

    /// Returns the next effect to begin.
    pub(super) fn next_effect(&mut self) -> Option<MachineAction> {
        self.effects.pop_front()
    }

    /// Forgets the effects that did not begin.
    pub(super) fn forget_effects(&mut self) {
        self.effects.clear();
    }

    /// Returns whether the run is over.
    pub(super) const fn is_over(&self) -> bool {
        self.finish.is_some()
    }

    pub(super) const fn take_finish(&mut self) -> Option<Finish> {
        self.finish.take()
    }

    pub(super) fn start(&mut self, step: Step) -> StepId {
        self.journal.start(step)
    }

    pub(super) fn stop(&mut self, step: StepId) {
        self.journal.stop(step);
    }

    pub(super) fn tell(&mut self, ask: AskId, told: StepReply) {
        self.journal.answer(ask, told);
    }

    pub(super) fn set_timer(&mut self, at: Option<Timestamp>) {
        self.journal.timer(at);
    }

    pub(super) fn watch(&mut self) {
        self.journal.watch();
    }

    pub(super) async fn new_id(&mut self) -> RunId {
        self.journal.new_id().await
    }

    /// Waits for the next facts, and appends them to `facts`.
    pub(super) async fn next(&mut self, facts: &mut Vec<Fact>) -> Result<(), AgentError> {
        let at = self.journal.next(facts).await?;
        self.at = self.at.max(at);
        Ok(())
    }
}

impl Readers {
    fn tell(&self, event: Event) {
        tracing::debug!(seq = event.seq, event = event.kind.event_type(), "logged");
        let Some(feed) = &self.feed else {
            return self.agent.hub.send(|| Live::Logged(Arc::new(event)));
        };
        let event = Arc::new(event);
        feed.event(&event);
        self.agent.hub.send(|| Live::Logged(event));
    }
}
