//! The machine and its journal. What the machine decides is handed out once it is recorded, never
//! before.

use std::collections::VecDeque;
use std::sync::Arc;

use backstop_event_log::Seed;
use backstop_react_machine::{
    CANCEL, Effect, EffectId, Finish, HookPoint, Input, Machine, Misuse, Output,
};
use layer0::Timestamp;
use layer0::event::{Event, EventKind};
use layer0::id::RunId;
use layer0::message::Message;
use layer0::operator::Caller;
use layer0::usage::Usage;

use crate::agent::inner::Inner;
use crate::error::AgentError;
use crate::feed::Feed;
use crate::journal::{AnyJournal, AskId, Batch, Fact, Step, StepId, Told};
use crate::live::Live;

/// Steps a machine through a run, each step with its append.
pub(super) struct Ledger {
    machine: Box<Machine>,
    journal: AnyJournal,
    readers: Readers,
    /// When the last fact came.
    at: Timestamp,
    /// What was decided and is not recorded, and the rows of the inbox that go with it.
    batch: Batch,
    decided: VecDeque<Effect>,
    /// What was decided and is recorded.
    effects: VecDeque<Effect>,
    finish: Option<Finish>,
    /// What was used as far as it is recorded; the machine is ahead when an append fails.
    usage: Usage,
}

/// Who is told what is recorded.
pub(super) struct Readers {
    pub(super) agent: Arc<Inner>,
    pub(super) feed: Option<Arc<Feed>>,
    /// Of the run above.
    pub(super) caller: Option<Arc<dyn Caller>>,
}

impl Ledger {
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
            batch: Batch::new(seed),
            decided: VecDeque::new(),
            effects: VecDeque::new(),
            finish: None,
            usage: Usage::default(),
        };
        // What a machine that was rebuilt decided last is recorded with its next step.
        ledger.drain();
        ledger
    }

    /// Goes on with a run that has used this much.
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

    /// Returns when the last fact came.
    pub(super) const fn at(&self) -> Timestamp {
        self.at
    }

    /// Returns what the record says was used.
    pub(super) const fn usage(&self) -> Usage {
        self.usage
    }

    /// Makes an input of what happened now.
    pub(super) fn fact(&self, fact: impl Into<EventKind>) -> Input {
        Input::fact(self.at, fact)
    }

    /// Makes an input of what an effect came to now.
    pub(super) fn answer(&self, effect: EffectId, fact: impl Into<EventKind>) -> Input {
        Input::answer(self.at, effect, fact)
    }

    /// Takes a row of the inbox with the next append.
    pub(super) fn take_row(&mut self, row: u64) {
        self.batch.taken.push(row);
    }

    /// Feeds facts, and records them with what the machine decides on them, in one append.
    pub(super) async fn step(
        &mut self,
        facts: impl IntoIterator<Item = Input>,
    ) -> Result<(), AgentError> {
        self.change(|machine| facts.into_iter().try_for_each(|fact| machine.handle(fact))).await
    }

    /// Feeds facts as [`Self::step`] does, but none behind the one that ends the run. What was decided before
    /// a cancellation is not begun any more.
    pub(super) async fn step_while_open(
        &mut self,
        facts: impl IntoIterator<Item = Input>,
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

    /// Tells the machine the time, and records what it decides on that.
    pub(super) async fn tick(&mut self) -> Result<(), AgentError> {
        let at = self.at;
        self.change(|machine| {
            machine.tick(at);
            Ok(())
        })
        .await
    }

    /// Records what the machine decides on a change.
    pub(super) async fn change(
        &mut self,
        change: impl FnOnce(&mut Machine) -> Result<(), Misuse>,
    ) -> Result<(), AgentError> {
        change(&mut self.machine).map_err(|misuse| AgentError::Internal(misuse.into()))?;
        self.drain();
        self.record().await
    }

    /// Records what the machine decided, and hands out the effects of that.
    pub(super) async fn record(&mut self) -> Result<(), AgentError> {
        self.journal.append(&mut self.batch).await?;
        for event in self.batch.written.drain(..) {
            self.readers.tell(event);
        }
        self.effects.append(&mut self.decided);
        self.usage = self.machine.usage();
        if let Some(caller) = &self.readers.caller {
            caller.used(self.usage);
        }
        Ok(())
    }

    fn drain(&mut self) {
        // A run that was over may have been opened again.
        self.finish = None;
        loop {
            match self.machine.poll() {
                Output::Append(entry) => self.batch.entries.push(entry),
                Output::Perform(effect) => self.decided.push_back(effect),
                Output::Finish(finish) => return self.finish = Some(finish),
                _ => return,
            }
        }
    }

    /// Returns the next effect to begin.
    pub(super) fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Forgets the effects that did not begin.
    pub(super) fn forget_effects(&mut self) {
        self.effects.clear();
    }

    /// Is the run over?
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

    pub(super) fn tell(&mut self, ask: AskId, told: Told) {
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

    /// Waits for what happens next, and puts it behind `facts`.
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
