//! Tools at work: how many at once, which of them again, and the runs they start.

use std::collections::{BTreeMap, VecDeque};

use backstop_react_machine::{EffectId, ToolRun};
use backstop_tool::Admitted;
use layer0::Timestamp;
use layer0::id::CallId;

use crate::journal::Execution;

/// The executions of a run, from admission to answer.
#[derive(Default)]
pub(super) struct Tools {
    /// What was admitted and has not begun, by call.
    admitted: BTreeMap<CallId, Admitted>,
    /// Executions that wait for a free place.
    queued: VecDeque<ToolRun>,
    /// Executions that are tried again, and when.
    waiting: Vec<(Timestamp, Box<Execution>)>,
    /// How many executions are at work, and how many of them may be repeated once.
    at_work: usize,
    promised: u32,
    /// The call that may start a run below; the next such call waits for it.
    dispatching: Option<CallId>,
    /// How often each call started one.
    dispatches: BTreeMap<CallId, u32>,
    /// What executions before this process were asked for, by call.
    recorded: BTreeMap<CallId, ToolRun>,
}

/// An execution that has not ended.
pub(super) struct AtWork {
    pub(super) effect: EffectId,
    call_id: CallId,
    /// Is another execution promised to it?
    may_repeat: bool,
}

impl Tools {
    /// Begins in a process that goes on with a run.
    pub(super) fn resumed(recorded: BTreeMap<CallId, ToolRun>) -> Self {
        Self { recorded, ..Self::default() }
    }

    pub(super) fn admitted(&mut self, call: CallId, admitted: Admitted) {
        self.admitted.insert(call, admitted);
    }

    pub(super) fn queue(&mut self, run: ToolRun) {
        self.queued.push_back(run);
    }

    /// Takes what an execution in an earlier process was asked for.
    pub(super) fn recorded(&mut self, call: &CallId) -> Option<ToolRun> {
        self.recorded.remove(call)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.queued.is_empty() && self.waiting.is_empty()
    }

    pub(super) fn wakes_at(&self) -> Option<Timestamp> {
        self.waiting.iter().map(|(at, _)| *at).min()
    }

    /// Returns how many executions are promised to tools at work.
    pub(super) const fn promised(&self) -> u32 {
        self.promised
    }

    /// Notes that an execution begins.
    pub(super) fn begin(&mut self, execution: &Execution) -> AtWork {
        self.at_work += 1;
        self.promised += u32::from(execution.may_repeat);
        AtWork {
            effect: execution.run.id,
            call_id: execution.run.call_id.clone(),
            may_repeat: execution.may_repeat,
        }
    }

    /// Notes that an execution has ended; it may be tried again.
    pub(super) fn end(&mut self, work: &AtWork, again: Option<(Timestamp, Box<Execution>)>) {
        self.at_work = self.at_work.saturating_sub(1);
        self.promised = self.promised.saturating_sub(u32::from(work.may_repeat));
        match again {
            Some(waiting) => self.waiting.push(waiting),
            None => drop(self.dispatching.take_if(|call| *call == work.call_id)),
        }
    }

    /// Notes that a call starts a run below. Returns how often it did.
    pub(super) fn dispatch(&mut self, call: &CallId) -> u32 {
        let attempts = self.dispatches.entry(call.clone()).or_default();
        *attempts = attempts.saturating_add(1);
        *attempts
    }

    /// Takes an execution that waited for this time.
    pub(super) fn due(&mut self, now: Timestamp) -> Option<Box<Execution>> {
        let place = self.waiting.iter().position(|(at, _)| *at <= now)?;
        Some(self.waiting.remove(place).1)
    }

    /// Forgets what has not begun.
    pub(super) fn forget(&mut self) {
        self.admitted.clear();
        self.queued.clear();
        self.waiting.clear();
        self.dispatching = None;
        (self.at_work, self.promised) = (0, 0);
    }

    /// Takes the next execution that may begin, if one of so many places is free. Runs below this one are
    /// started one at a time, and what waits for its turn has not begun, so that its time does not pass.
    pub(super) fn next(&mut self, places: usize) -> Option<(ToolRun, Admitted)> {
        if self.at_work + self.waiting.len() >= places {
            return None;
        }
        let is_free = self.dispatching.is_none();
        while let Some(place) = self.queued.iter().position(|run| {
            let admitted = self.admitted.get(&run.call_id);
            is_free || admitted.is_none_or(|admitted| admitted.dispatch().is_none())
        }) {
            let run = self.queued.remove(place)?;
            if let Some(admitted) = self.admitted.remove(&run.call_id) {
                if admitted.dispatch().is_some() {
                    self.dispatching = Some(run.call_id.clone());
                }
                return Some((run, admitted));
            }
        }
        None
    }
}
