//! Decisions of the machine that were not handed out yet.

use std::collections::VecDeque;

use layer0::Timestamp;
use layer0::event::{Actor, EventKind};

use crate::io::{EffectId, MachineAction, MachineEntry, MachineOutput};

/// Entries and effects in the order of their decision, with the counters of their numbers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Outbox {
    seq: u64,
    epoch: u32,
    effects: u32,
    outputs: VecDeque<MachineOutput>,
}

impl Default for Outbox {
    fn default() -> Self {
        Self { seq: 0, epoch: 1, effects: 0, outputs: VecDeque::new() }
    }
}

impl Outbox {
    /// Queues an entry and returns its seq.
    pub(crate) fn append(
        &mut self,
        at: Timestamp,
        actor: Actor,
        caused_by: Option<u64>,
        kind: EventKind,
    ) -> u64 {
        self.seq += 1;
        self.outputs.push_back(MachineOutput::Append(MachineEntry {
            seq: self.seq,
            at,
            actor,
            caused_by,
            kind,
        }));
        self.seq
    }

    pub(crate) fn perform(&mut self, effect: MachineAction) {
        self.outputs.push_back(MachineOutput::Perform(effect));
    }

    pub(crate) fn pop(&mut self) -> Option<MachineOutput> {
        self.outputs.pop_front()
    }

    /// Returns the id of the next effect.
    pub(crate) fn next_effect(&mut self) -> EffectId {
        self.effects += 1;
        EffectId { epoch: self.epoch, number: self.effects }
    }

    /// Returns the seq of the last entry, which is also the number of entries.
    pub(crate) const fn seq(&self) -> u64 {
        self.seq
    }

    /// Begins the epoch of another process: answers to earlier effects are stale.
    pub(crate) const fn begin_epoch(&mut self) {
        self.epoch = self.epoch.saturating_add(1);
    }

    /// Gives back the numbers of the last entries, which were decided but never recorded.
    pub(crate) fn forget(&mut self, entries: usize) {
        self.seq = self.seq.saturating_sub(u64::try_from(entries).unwrap_or(u64::MAX));
    }
}
