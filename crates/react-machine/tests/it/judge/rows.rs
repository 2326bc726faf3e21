//! The row of a run: the state that lists and workers see, folded from its events.

use backstop_event_log::{RunState, RunSummary};
use backstop_react_machine::{Machine, MachineEntry};
use layer0::event::Event;

/// The row of a run, as a log folds it.
#[derive(Clone)]
pub(super) struct Row(RunSummary);

impl Row {
    pub(super) fn new() -> Self {
        Self(RunSummary::new("run_1".into()))
    }

    pub(super) fn read(&mut self, entry: &MachineEntry) {
        let MachineEntry { seq, at, actor, kind, .. } = entry.clone();
        self.0.apply(&Event::new("run_1", seq, at, actor, kind));
    }

    /// Fails if the row differs from the result of the machine for the same events.
    pub(super) fn check(&self, machine: &Machine) {
        let last = self.0.last_seq;
        assert_eq!(self.0.is_open(), !machine.is_over(), "open after event {last}");
        if self.0.is_open() {
            assert_eq!(self.0.state, state_of(machine), "after event {last}");
        }
    }
}

/// Returns the state of an open run.
fn state_of(machine: &Machine) -> RunState {
    let below = machine.open_dispatches().iter().filter_map(|open| open.waits.as_ref());
    let asks_below = below.into_iter().any(|waits| !waits.approvals.is_empty());
    match machine.is_waiting() {
        true if machine.parked_until().is_some() => RunState::Parked,
        true if asks_below || machine.open_approvals().next().is_some() => {
            RunState::WaitingApproval
        }
        _ => RunState::Running,
    }
}
