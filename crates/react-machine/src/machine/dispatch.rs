//! Child runs: their share of the budget, their waits and their usage.

use std::collections::BTreeMap;
use std::sync::Arc;

use layer0::Timestamp;
use layer0::event::{
    Actor, BudgetGranted, OperatorDispatched, OperatorReturned, OperatorWaiting, RunWaiting,
    WaitFor,
};
use layer0::id::{CallId, RunId};
use layer0::usage::Allowance;

use super::{Machine, MachineState};
use crate::io::EffectId;
use crate::meter::{ChildDispatch, Grant, NoBudgetLeft, Shares};
use crate::phase::RunPhase;
use crate::phase::batch::CallBatch;

/// Number of parts that the rest of the budget is divided into if the number of child runs is unknown.
const UNKNOWN_SHARES: u32 = 2;

impl Machine {
    /// Returns the dispatches that have not returned.
    #[must_use]
    pub fn open_dispatches(&self) -> &[ChildDispatch] {
        self.run.meter.open_dispatches()
    }

    /// Returns the effect of a running call.
    #[must_use]
    pub fn find_effect(&self, call: &CallId) -> Option<EffectId> {
        self.phase.batch()?.find_effect(call)
    }

    /// Returns the grant of a child run that is now dispatched for a call: its share of the rest of the budget, less
    /// one model call and the possible needs of other tools of the batch. Calls that only dispatch, and have not done
    /// so yet, get equal shares; a child run of another tool gets half, or one of `parts` shares if that many of the
    /// tool's child runs are not granted yet, including this one. `is_priced` is whether its cost will be known.
    ///
    /// # Errors
    ///
    /// [`NoBudgetLeft`], naming the budget that is used up or cannot be kept.
    pub fn grant(
        &self,
        at: Timestamp,
        call: &CallId,
        is_priced: bool,
        parts: Option<u32>,
    ) -> Result<Grant, NoBudgetLeft> {
        let MachineState { meter, clock, .. } = &self.run;
        let shares = match (self.others(call), parts) {
            (Some(others), parts) => others.saturating_add(parts.unwrap_or(1)),
            (None, parts) => parts.unwrap_or(UNKNOWN_SHARES),
        };
        let shares = Shares { kept: self.executions_kept(), shares, is_priced };
        let (wall_ms, events) = (clock.elapsed_ms(at), self.run.events());
        let allowance = meter.allowance_below(wall_ms, events, shares)?;
        let time = self.deadline().map(|deadline| clock.time_until(deadline, at));
        Ok(Grant::new(allowance, time))
    }

    /// Returns a further grant for a child run, which shares the rest with the calls that have not dispatched yet.
    ///
    /// # Errors
    ///
    /// [`NoBudgetLeft`], as [`Machine::grant`].
    pub fn grant_more(&self, at: Timestamp, run: &RunId) -> Result<Grant, NoBudgetLeft> {
        let MachineState { meter, clock, .. } = &self.run;
        let mut open = meter.open_dispatches().iter();
        let open = open.find(|open| open.run == *run);
        let others = open.and_then(|open| self.others(&open.call_id));
        let shares = others.map_or(UNKNOWN_SHARES, |others| others.saturating_add(1));
        let shares = Shares { kept: self.executions_kept(), shares, is_priced: true };
        let (wall_ms, events) = (clock.elapsed_ms(at), self.run.events());
        // The limit of its task holds whatever other runs give back.
        let left = open.and_then(|open| Some(open.at_most?.less(&open.allowance)));
        let within = |grant: Grant| left.map_or(Ok(grant), |left| grant.at_most(&left));
        within(Grant::new(Allowance::without_bounds(), None))?;
        within(Grant::new(meter.allowance_below(wall_ms, events, shares)?, None))
    }

    /// Notifies the machine that all running child runs only wait. Once nothing else is in flight, it records the wait;
    /// before that, it changes nothing.
    pub fn wait_below(&mut self, at: Timestamp) {
        let Self { phase: RunPhase::Working(batch), run } = self else { return };
        if run.clock.is_waiting() {
            return;
        }
        let open = run.meter.open_dispatches();
        let waits = |call: &CallId| {
            let mut of_call = open.iter().filter(|open| open.call_id == *call).peekable();
            of_call.peek().is_some() && of_call.all(|open| open.waits.is_some())
        };
        if !batch.is_idle_but(waits) {
            return;
        }
        let below = open.iter().filter_map(|open| open.waits.as_ref());
        let held = batch.held_approvals().map(|approval| approval.id.clone());
        let mut waiting = RunWaiting::new(WaitFor::Approval, held.collect());
        waiting.approvals.extend(below.clone().flat_map(|waits| waits.approvals.iter().cloned()));
        if waiting.approvals.is_empty() {
            let Some(first) = below.into_iter().next() else { return };
            waiting.r#for = first.r#for;
        }
        run.clock.advance(at);
        let cause = run.events();
        run.append(Actor::Machine, Some(cause), waiting);
        run.clock.begin_waiting();
    }

    fn executions_kept(&self) -> u32 {
        let dispatches = |tool: &str| self.run.dispatches(tool);
        let kept = self.phase.batch().map(|batch| batch.executions_kept(dispatches));
        kept.unwrap_or_default()
    }

    /// Returns the number of other calls that have yet to dispatch; `None` if the call's tool does not declare that it
    /// dispatches.
    fn others(&self, call: &CallId) -> Option<u32> {
        let MachineState { meter, .. } = &self.run;
        let has_dispatched =
            |id: &CallId| meter.open_dispatches().iter().any(|open| open.call_id == *id);
        let unanswered = self.phase.batch().into_iter().flat_map(CallBatch::unanswered_calls);
        let (mut others, mut is_known) = (0_u32, false);
        for (id, _) in unanswered.filter(|(_, tool)| self.run.dispatches(tool)) {
            others += u32::from(id != call && !has_dispatched(id));
            is_known |= id == call;
        }
        is_known.then_some(others)
    }
}

impl MachineState {
    /// Returns whether a tool only dispatches.
    pub(super) fn dispatches(&self, tool: &str) -> bool {
        self.definition.tools.iter().any(|spec| *spec.name == *tool && spec.dispatches)
    }

    /// Returns whether a call continues after its process died: a call that only dispatches does, unless one of its
    /// child runs keeps no record.
    pub(super) fn goes_on(&self, call: &CallId, tool: &str) -> bool {
        let mut open = self.meter.open_dispatches().iter();
        let did_more = self.begun_otherwise.get(call) == Some(&false);
        self.dispatches(tool)
            && !did_more
            && !open.any(|open| open.call_id == *call && open.unrecorded)
    }

    /// Returns whether only child runs with records of their own are in flight.
    pub(super) fn only_waits_below(&self, phase: &RunPhase) -> bool {
        let Some(batch) = phase.batch() else { return false };
        let tools: BTreeMap<_, _> = batch.running().collect();
        !self.meter.open_dispatches().is_empty()
            && batch
                .is_idle_but(|call| tools.get(call).is_some_and(|tool| self.goes_on(call, tool)))
    }

    pub(super) fn record_dispatch(
        &mut self,
        cause: u64,
        call_id: CallId,
        dispatched: OperatorDispatched,
    ) -> Option<RunPhase> {
        self.clock.end_waiting();
        let (operator, run) = (dispatched.operator.clone(), dispatched.run.clone());
        let (attempt, allowance) = (dispatched.attempt, *dispatched.allowance);
        let input_digest = Arc::clone(&dispatched.input_digest);
        let (unrecorded, at_most) = (dispatched.unrecorded, dispatched.at_most.as_deref().copied());
        let requested = self.append(Actor::Runtime, Some(cause), dispatched);
        self.meter.begin_dispatch(ChildDispatch {
            operator,
            run,
            call_id,
            attempt,
            input_digest,
            allowance,
            grants: Vec::new(),
            waits: None,
            unrecorded,
            is_known: false,
            at_most,
            requested,
        });
        None
    }

    pub(super) fn waiting_below(&mut self, waiting: OperatorWaiting) -> Option<RunPhase> {
        self.clock.end_waiting();
        let cause = self.meter.wait_below(&waiting);
        self.append(Actor::Runtime, cause, waiting);
        None
    }

    pub(super) fn granted_below(&mut self, granted: BudgetGranted) -> Option<RunPhase> {
        self.clock.end_waiting();
        let cause = self.meter.grant_below(&granted.run, granted.allowance.as_deref());
        self.append(Actor::Runtime, cause, granted);
        None
    }

    pub(super) fn record_return(&mut self, returned: OperatorReturned) -> Option<RunPhase> {
        self.clock.end_waiting();
        let child = self.meter.end_dispatch(&returned.run, &returned.usage);
        if let Some(child) = &child {
            self.unsettled.record_return(child, &returned);
        }
        self.append(Actor::Runtime, child.map(|child| child.requested), returned);
        None
    }
}
