//! How a run begins, and the memory around it.

use std::sync::Arc;

use layer0::event::{Actor, RunStarted};
use layer0::message::Message;

use crate::hooks::Next;
use crate::io::{Effect, FailureCause};
use crate::machine::{Machine, Phase};
use crate::typed::instruction;

impl Machine {
    pub(crate) fn start(&mut self, started: RunStarted) {
        self.started = self.now();
        self.input = Arc::clone(&started.input);
        self.images = Arc::clone(&started.images);
        let seq = self.append(Actor::Runtime, None, started);
        match self.definition.budget.depth(self.depth) {
            Some(exhausted) => self.exhaust(seq, exhausted),
            None => self.step_with_hooks(seq, Next::Start),
        }
    }

    pub(crate) fn look_at_input(&mut self, seq: u64) {
        if self.input.trim().is_empty() {
            return self.fail(seq, FailureCause::InputInvalid("the input is empty"));
        }
        if !self.definition.memory {
            return self.recalled(seq, &[]);
        }
        self.phase = Phase::Recalling;
        self.perform(Effect::ReadMemory { input: Arc::clone(&self.input) });
    }

    /// Begins the conversation with what is remembered, and asks the model.
    pub(crate) fn recalled(&mut self, cause: u64, entries: &[Arc<str>]) {
        self.begin_transcript(entries);
        self.next_turn(cause);
    }

    pub(crate) fn begin_transcript(&mut self, entries: &[Arc<str>]) {
        let mut system = self.definition.instructions.to_string();
        for (index, entry) in entries.iter().enumerate() {
            let gap = if index > 0 {
                ""
            } else if system.is_empty() {
                "Memory:"
            } else {
                "\n\nMemory:"
            };
            system.push_str(gap);
            system.push_str("\n- ");
            system.push_str(entry);
        }
        if let Some(schema) = &self.definition.output_schema {
            let gap = if system.is_empty() { "" } else { "\n\n" };
            system.push_str(gap);
            system.push_str(&instruction(schema));
        }
        if !system.is_empty() {
            self.transcript.push(Message::system(system));
        }
        for message in std::mem::take(&mut self.history) {
            self.transcript.push_shared(message);
        }
        let (content, images) = (Arc::clone(&self.input), Arc::clone(&self.images));
        self.transcript.push(Message::User { content, images });
    }

    /// Ends the run as it was about to.
    pub(crate) fn memorized(&mut self, cause: u64) {
        if let Phase::Memorizing { stop, output } = &self.phase {
            let (stop, output) = (stop.clone(), Arc::clone(output));
            self.end(cause, stop, output);
        }
    }
}
