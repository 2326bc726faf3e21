//! Tools at work: how many at once, which of them again, and the runs they start.

use std::collections::{BTreeMap, VecDeque};

use backstop_event_log::Settlement;
use backstop_react_machine::{EffectId, ToolRun};
use backstop_tool::Admitted;
use layer0::Timestamp;
use layer0::event::ToolLate;
use layer0::id::{CallId, RunId};

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
    /// The runs below that this process started or resumed.
    taken_up: BTreeMap<RunId, TakenUp>,
    /// What executions before this process were asked for, by call.
    recorded: BTreeMap<CallId, ToolRun>,
    /// What people say of calls that are being stopped, with the rows that say it.
    settlements: BTreeMap<CallId, (u64, Settlement)>,
    /// Late answers that are not recorded.
    late: Vec<ToolLate>,
}

/// An execution that has not ended.
pub(super) struct AtWork {
    pub(super) effect: EffectId,
    call_id: CallId,
    /// Is another execution promised to it?
    may_repeat: bool,
    /// May it be left, and made again when the run is taken up?
    may_leave: bool,
}

impl AtWork {
    pub(super) const fn call_id(&self) -> &CallId {
        &self.call_id
    }

    pub(super) const fn may_leave(&self) -> bool {
        self.may_leave
    }
}

/// A run below that a dispatch in this process was given.
struct TakenUp {
    number: u64,
    is_new: bool,
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
    pub(super) fn begin(&mut self, execution: &Execution, may_leave: bool) -> AtWork {
        self.at_work += 1;
        self.promised += u32::from(execution.may_repeat);
        AtWork {
            effect: execution.run.id,
            call_id: execution.run.call_id.clone(),
            may_repeat: execution.may_repeat,
            may_leave,
        }
    }

    /// Notes that an execution has ended; it may be tried again.
    pub(super) fn end(&mut self, work: &AtWork, again: Option<(Timestamp, Box<Execution>)>) {
        self.at_work = self.at_work.saturating_sub(1);
        self.promised = self.promised.saturating_sub(u32::from(work.may_repeat));
        self.waiting.extend(again);
    }

    /// Notes that a dispatch in this process is given a run below: a new one, or a recorded one that it resumes.
    pub(super) fn take_up(&mut self, run: RunId, number: u64, is_new: bool) {
        self.taken_up.insert(run, TakenUp { number, is_new });
    }

    /// Was a run below started or resumed in this process?
    pub(super) fn is_taken_up(&self, run: &RunId) -> bool {
        self.taken_up.contains_key(run)
    }

    /// Is a run below not known to have begun, unless what dispatched it says how it ended?
    pub(super) fn is_new(&self, run: &RunId) -> bool {
        self.taken_up.get(run).is_some_and(|taken_up| taken_up.is_new)
    }

    /// Notes that a run below has begun.
    pub(super) fn begun(&mut self, run: &RunId) {
        if let Some(taken_up) = self.taken_up.get_mut(run) {
            taken_up.is_new = false;
        }
    }

    /// Lets another dispatch resume a run below.
    pub(super) fn let_go(&mut self, run: &RunId) {
        self.taken_up.remove(run);
    }

    /// Returns the run below that the dispatch of this number was given.
    pub(super) fn dispatched_as(&self, number: u64) -> Option<RunId> {
        let mut runs = self.taken_up.iter();
        runs.find(|(_, taken_up)| taken_up.number == number).map(|(run, _)| run.clone())
    }

    /// Takes an execution that waited for this time.
    pub(super) fn due(&mut self, now: Timestamp) -> Option<Box<Execution>> {
        let place = self.waiting.iter().position(|(at, _)| *at <= now)?;
        Some(self.waiting.remove(place).1)
    }

    /// Keeps what a person says of a call until its execution has ended.
    pub(super) fn settle(&mut self, call: CallId, row: u64, settlement: Settlement) {
        self.settlements.entry(call).or_insert((row, settlement));
    }

    pub(super) fn is_settled(&self, call: &CallId) -> bool {
        self.settlements.contains_key(call)
    }

    pub(super) fn take_settlement(&mut self, call: &CallId) -> Option<(u64, Settlement)> {
        self.settlements.remove(call)
    }

    pub(super) fn take_settlements(&mut self) -> Vec<(CallId, u64, Settlement)> {
        let all = std::mem::take(&mut self.settlements).into_iter();
        all.map(|(call, (row, settlement))| (call, row, settlement)).collect()
    }

    /// Keeps the late answer of a call that was given up.
    pub(super) fn keep_late(&mut self, late: ToolLate) {
        self.late.push(late);
    }

    /// Takes the late answers of the calls that fit.
    pub(super) fn take_late(&mut self, fits: impl Fn(&CallId) -> bool) -> Vec<ToolLate> {
        self.late.extract_if(.., |late| fits(&late.call_id)).collect()
    }

    /// Does not begin a call, or not again.
    pub(super) fn withdraw(&mut self, call: &CallId) {
        self.admitted.remove(call);
        self.queued.retain(|run| run.call_id != *call);
        self.waiting.retain(|(_, execution)| execution.run.call_id != *call);
    }

    /// Forgets what has not begun.
    pub(super) fn forget(&mut self) {
        self.admitted.clear();
        self.queued.clear();
        self.waiting.clear();
        (self.at_work, self.promised) = (0, 0);
    }

    /// Takes the next execution that may begin, if one of so many places is free. What waits for its turn
    /// has not begun, so that its time does not pass.
    pub(super) fn next(&mut self, places: usize) -> Option<(ToolRun, Admitted)> {
        if self.at_work + self.waiting.len() >= places {
            return None;
        }
        while let Some(run) = self.queued.pop_front() {
            if let Some(admitted) = self.admitted.remove(&run.call_id) {
                return Some((run, admitted));
            }
        }
        None
    }
}
