//! Runs below a run: what they may use of its budget, and what they used.

use layer0::Timestamp;
use layer0::event::{Actor, OperatorDispatched, OperatorReturned};
use layer0::id::CallId;

use super::{Machine, Run};
use crate::meter::{Dispatch, Grant, NothingLeft};
use crate::phase::Phase;
use crate::phase::batch::Batch;

impl Machine {
    /// Returns the dispatch that has not returned.
    #[must_use]
    pub const fn open_dispatch(&self) -> Option<&Dispatch> {
        self.run.meter.open_dispatch()
    }

    /// Returns what a run may use that is dispatched now: all that is left, less one model call and
    /// what the other calls of the batch may need. `is_priced` says whether its cost will be known.
    ///
    /// # Errors
    ///
    /// [`NothingLeft`], naming the budget that is used up or cannot be kept.
    pub fn grant(&self, at: Timestamp, is_priced: bool) -> Result<Grant, NothingLeft> {
        let Run { meter, clock, .. } = &self.run;
        let kept = self.phase.batch().map_or(0, Batch::executions_kept);
        let (wall_ms, events) = (clock.elapsed_ms(at), self.run.events());
        let allowance = meter.allowance_below(wall_ms, events, kept, is_priced)?;
        let time = self.deadline().map(|deadline| clock.time_until(deadline, at));
        Ok(Grant::new(allowance, time))
    }
}

impl Run {
    pub(super) fn dispatched(
        &mut self,
        cause: u64,
        call_id: CallId,
        dispatched: OperatorDispatched,
    ) -> Option<Phase> {
        let (operator, run) = (dispatched.operator.clone(), dispatched.run.clone());
        let allowance = *dispatched.allowance;
        let requested = self.append(Actor::Runtime, Some(cause), dispatched);
        self.meter.begin_dispatch(Dispatch { operator, run, call_id, allowance, requested });
        None
    }

    pub(super) fn returned(&mut self, returned: OperatorReturned) -> Option<Phase> {
        let cause = self.meter.end_dispatch(&returned.usage);
        self.append(Actor::Runtime, cause, returned);
        None
    }
}
