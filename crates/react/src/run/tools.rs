//! Executions of tools: their permits, their retries, and the child runs that they start.

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
    /// Admitted calls that have not begun.
    admitted: BTreeMap<CallId, Admitted>,
    /// Executions that wait for a free permit.
    queued: VecDeque<ToolRun>,
    /// Executions to retry, with the time of the retry.
    waiting: Vec<(Timestamp, Box<Execution>)>,
    /// Number of running executions, and the number of those that may be repeated once.
    at_work: usize,
    promised: u32,
    /// The child runs that this process started or resumed.
    taken_up: BTreeMap<RunId, TakenUp>,
    /// Requests of executions before this process, by call.
    recorded: BTreeMap<CallId, ToolRun>,
    /// Settlements of calls that are being stopped, with their rows of the inbox.
    settlements: BTreeMap<CallId, (u64, Settlement)>,
    /// Late answers that are not recorded yet.
    late: Vec<ToolLate>,
}

/// A running execution.
pub(super) struct RunningExecution {
    pub(super) effect: EffectId,
    call_id: CallId,
    /// Whether another execution is promised to it.
    may_repeat: bool,
    /// Whether a suspended run drops it and repeats it on resume.
    may_leave: bool,
}

impl RunningExecution {
    pub(super) const fn call_id(&self) -> &CallId {
        &self.call_id
    }

    pub(super) const fn may_leave(&self) -> bool {
        self.may_leave
    }
}

/// A child run that a dispatch in this process started or resumed.
struct TakenUp {
    number: u64,
    is_new: bool,
}

impl Tools {
    /// Returns the tools of a resumed run.
    pub(super) fn for_resumed_run(recorded: BTreeMap<CallId, ToolRun>) -> Self {
        Self { recorded, ..Self::default() }
    }

    pub(super) fn add_admitted(&mut self, call: CallId, admitted: Admitted) {
        self.admitted.insert(call, admitted);
    }

    pub(super) fn queue(&mut self, run: ToolRun) {
        self.queued.push_back(run);
    }

    /// Takes the request of an execution in an earlier process.
    pub(super) fn take_recorded(&mut self, call: &CallId) -> Option<ToolRun> {
        self.recorded.remove(call)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.queued.is_empty() && self.waiting.is_empty()
    }

    pub(super) fn wakes_at(&self) -> Option<Timestamp> {
        self.waiting.iter().map(|(at, _)| *at).min()
    }

    /// Returns the number of executions that are promised to running calls.
    pub(super) const fn promised_executions(&self) -> u32 {
        self.promised
    }

    /// Registers the begin of an execution.
    pub(super) fn begin(&mut self, execution: &Execution, may_leave: bool) -> RunningExecution {
        self.at_work += 1;
        self.promised += u32::from(execution.may_repeat);
        RunningExecution {
            effect: execution.run.id,
            call_id: execution.run.call_id.clone(),
            may_repeat: execution.may_repeat,
            may_leave,
        }
    }

    /// Registers the end of an execution, and its retry if there is one.
    pub(super) fn end(
        &mut self,
        work: &RunningExecution,
        again: Option<(Timestamp, Box<Execution>)>,
    ) {
        self.at_work = self.at_work.saturating_sub(1);
        self.promised = self.promised.saturating_sub(u32::from(work.may_repeat));
        self.waiting.extend(again);
    }

    /// Registers the child run of a dispatch in this process: a new one, or a recorded one that it resumes.
    pub(super) fn take_up(&mut self, run: RunId, number: u64, is_new: bool) {
        self.taken_up.insert(run, TakenUp { number, is_new });
    }

    /// Returns whether a child run was started or resumed in this process.
    pub(super) fn is_taken_up(&self, run: &RunId) -> bool {
        self.taken_up.contains_key(run)
    }

    /// Returns whether a child run is new in this process and not known to have begun.
    pub(super) fn is_new(&self, run: &RunId) -> bool {
        self.taken_up.get(run).is_some_and(|taken_up| taken_up.is_new)
    }

    /// Registers that a child run has begun.
    pub(super) fn mark_begun(&mut self, run: &RunId) {
        if let Some(taken_up) = self.taken_up.get_mut(run) {
            taken_up.is_new = false;
        }
    }

    /// Lets another dispatch resume a child run.
    pub(super) fn let_go(&mut self, run: &RunId) {
        self.taken_up.remove(run);
    }

    /// Returns the child run of the dispatch with this number.
    pub(super) fn dispatched_as(&self, number: u64) -> Option<RunId> {
        let mut runs = self.taken_up.iter();
        runs.find(|(_, taken_up)| taken_up.number == number).map(|(run, _)| run.clone())
    }

    /// Takes an execution that is due.
    pub(super) fn due(&mut self, now: Timestamp) -> Option<Box<Execution>> {
        let place = self.waiting.iter().position(|(at, _)| *at <= now)?;
        Some(self.waiting.remove(place).1)
    }

    /// Keeps the settlement of a call until its execution has ended.
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

    /// Takes the late answers of the calls that `fits` accepts.
    pub(super) fn take_late(&mut self, fits: impl Fn(&CallId) -> bool) -> Vec<ToolLate> {
        self.late.extract_if(.., |late| fits(&late.call_id)).collect()
    }

    /// Drops a call that has not begun, or its retry.
    pub(super) fn withdraw(&mut self, call: &CallId) {
        self.admitted.remove(call);
        self.queued.retain(|run| run.call_id != *call);
        self.waiting.retain(|(_, execution)| execution.run.call_id != *call);
    }

    /// Forgets calls that have not begun, and the counts of running ones.
    pub(super) fn forget(&mut self) {
        self.admitted.clear();
        self.queued.clear();
        self.waiting.clear();
        (self.at_work, self.promised) = (0, 0);
    }

    /// Takes the next execution, if fewer than `places` permits are used. A waiting execution has not begun, so its
    /// time does not pass.
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
