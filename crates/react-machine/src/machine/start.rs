//! The beginning of a run, and its memory.

use std::sync::Arc;

use layer0::event::{Actor, EventKind, MemoryDegraded, MemoryRead, RunStarted};
use layer0::message::Message;

use super::{Machine, MachineState, StartProgress};
use crate::failure::FailureCause;
use crate::io::MachineAction;
use crate::phase::RunPhase;
use crate::phase::paused::{PausedStep, PlannedEnd, Stopped};

impl Machine {
    /// Gives the machine the earlier messages of the session, without system messages. They influence no decision:
    /// `run.started` has the end of the session's transcript, so that a replay does not need them. Call it before the
    /// first model call is performed.
    pub fn provide_earlier(&mut self, messages: Vec<Arc<Message>>) {
        self.run.conversation.provide_earlier(messages);
    }
}

impl MachineState {
    pub(super) fn start(&mut self, started: RunStarted) -> RunPhase {
        self.clock.start();
        self.settles_once = started.machine >= 2;
        let time = started.deadline.map(|deadline| deadline.since(self.clock.now()));
        let has_caller = started.parent.is_some();
        self.meter.limit(started.depth, started.allowance.as_deref(), time, has_caller);
        self.conversation.start(&started);
        self.labels = Arc::clone(&started.labels);
        let seq = self.append(Actor::Runtime, None, started);
        self.pause_before(seq, PausedStep::Start)
    }

    pub(super) fn look_at_input(&mut self, cause: u64) -> RunPhase {
        if self.conversation.input().trim().is_empty() {
            return self.fail(cause, FailureCause::InputInvalid("the input is empty".into()));
        }
        self.begun = StartProgress::Admitted;
        self.remember(cause)
    }

    /// Calls the model, after the memory was read if there is one.
    pub(super) fn remember(&mut self, cause: u64) -> RunPhase {
        if !self.definition.memory {
            return self.ask_first(cause, &[]);
        }
        self.read_memory();
        RunPhase::Recalling
    }

    pub(super) fn read_memory(&mut self) {
        let input = Arc::clone(self.conversation.input());
        self.perform(MachineAction::ReadMemory { input });
    }

    pub(super) fn memory_read(&mut self, read: MemoryRead) -> RunPhase {
        let entries = read.entries.clone();
        let seq = self.append(Actor::Memory, None, read);
        self.ask_first(seq, &entries)
    }

    pub(super) fn memory_unread(&mut self, degraded: MemoryDegraded) -> RunPhase {
        let seq = self.append(Actor::Memory, None, degraded);
        self.ask_first(seq, &[])
    }

    /// Begins the transcript with the contents of the memory, and calls the model.
    fn ask_first(&mut self, cause: u64, remembered: &[Arc<str>]) -> RunPhase {
        self.conversation.begin(&self.definition, remembered);
        self.begun = StartProgress::Whole;
        self.next_turn(cause)
    }

    pub(super) fn write_memory(&mut self, output: &Arc<str>) {
        let (input, output) = (Arc::clone(self.conversation.input()), Arc::clone(output));
        self.perform(MachineAction::WriteMemory { input, output });
    }

    /// Ends the run as planned.
    pub(super) fn memory_wrote(&mut self, stopped: &Stopped, note: EventKind) -> RunPhase {
        let seq = self.append(Actor::Memory, None, note);
        self.end(seq, PlannedEnd::Stopped(stopped.clone()))
    }
}
