//! B1, O2: runs below, and the shares of the budget that they have.

use layer0::event::OperatorDispatched;
use layer0::id::RunId;

use super::facts::Read;
use super::model::{Complaint, Judge, OpenDispatch};
use super::rules::Room;

impl Judge {
    pub(super) fn below(&mut self, run: &RunId) -> Result<&mut OpenDispatch, Complaint> {
        let open = self.dispatches.iter_mut().find(|open| open.run == *run);
        open.ok_or_else(|| format!("{run} is not dispatched"))
    }

    pub(super) fn dispatch(&mut self, it: &OperatorDispatched) -> Read {
        let Some(call) = it.call_id.clone() else { return Err("it serves no call".into()) };
        let place = self.place(&call)?;
        if !self.calls[place].is_running() {
            return Err("the call is not running".into());
        }
        self.is_waiting = false;
        let (run, share, is_unrecorded) = (it.run.clone(), *it.allowance, it.unrecorded);
        let waits = None;
        self.dispatches.push(OpenDispatch { run, call, share, is_unrecorded, waits });
        self.check_promises()
    }

    /// B1, O2: what runs below may use is left of the tree's budget, and given once.
    pub(super) fn check_promises(&self) -> Read {
        let (used, room) = (self.used(), self.budgets().effective());
        let given: Vec<Room> =
            self.dispatches.iter().map(|open| Room::from_allowance(&open.share)).collect();
        let sum = |part: fn(&Room) -> Option<u64>| given.iter().filter_map(part).sum::<u64>();
        let tokens = used.input_tokens + used.output_tokens;
        let kept = [
            (room.attempts, used.attempts, sum(|room| room.attempts)),
            (room.executions, used.executions, sum(|room| room.executions)),
            (room.total_tokens, tokens, sum(|room| room.total_tokens)),
        ];
        match kept.iter().find(|(limit, used, given)| limit.is_some_and(|it| used + given > it)) {
            Some(kept) => Err(format!("more is promised than there is: {kept:?}")),
            None => Ok(()),
        }
    }
}
