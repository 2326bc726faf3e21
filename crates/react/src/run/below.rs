//! Child runs: dispatched, waiting, given more budget, ended.

use std::sync::Arc;

use backstop_event_log::OpenApproval;
use backstop_react_machine::{Approval, ChildDispatch, MachineInput};
use layer0::event::{BudgetGranted, EventKind, OperatorWaiting, RunParked, RunResumed, WaitFor};
use layer0::id::{CallId, RunId};
use layer0::operator::Waiting;
use layer0::usage::Allowance;
use layer0::{Code, Timestamp, code};

use super::tools::RunningExecution;
use super::{Run, StepPurpose};
use crate::error::{AgentError, internal};
use crate::journal::{AskId, Step, StepReply, StepRequest};

/// Recorded author of the resumption of a parked run.
const RUNTIME: &str = "backstop";

/// Recorded message of a run that waits only for parked child runs.
const PARKED_BELOW: &str = "runs below are parked";

impl Run {
    /// Waits if nothing in flight makes progress. Returns whether the run is suspended.
    pub(super) async fn rest(&mut self) -> Result<bool, AgentError> {
        if !self.ledger.machine().is_waiting() {
            let at = self.ledger.at();
            self.ledger
                .change(|machine| {
                    machine.wait_below(at);
                    Ok(())
                })
                .await?;
            if !self.ledger.machine().is_waiting() {
                return match self.in_flight.is_empty() {
                    true => Err(internal("the machine waits for nothing".to_owned())),
                    // An approver is asked about an approval that is no longer open.
                    false => Ok(false),
                };
            }
        }
        if self.below.leaves {
            if self.in_flight.is_empty() {
                return Ok(true);
            }
            self.tell_to_leave();
            return Ok(false);
        }
        let has_told = self.in_flight.iter().any(|(_, of)| matches!(of, StepPurpose::Wait));
        // Without a log, an approval cannot be decided from outside.
        let is_undecidable =
            self.agent.log.is_none() && self.ledger.machine().open_approvals().next().is_some();
        if self.effects.caller().is_some() && !is_undecidable {
            let waiting = self.waiting();
            if !has_told {
                self.below.told = Some(waiting.clone());
                self.start(Step::Wait(waiting), StepPurpose::Wait);
            } else if self.below.told.as_ref().is_some_and(|told| *told != waiting) {
                // The caller gets the new wait after the end of this one is reported.
                self.stop_waiting();
            }
            return Ok(false);
        }
        match self.inbox.is_empty {
            _ if self.stays() => Ok(false),
            true => {
                self.park_below().await?;
                self.below.leaves = true;
                self.tell_to_leave();
                Ok(self.in_flight.is_empty())
            }
            false => {
                self.ledger.watch();
                Ok(false)
            }
        }
    }

    /// Continues after a wait, and reports that to the caller.
    pub(super) fn go_on(&mut self) {
        self.below.leaves = false;
        self.stop_waiting();
    }

    /// Ends the wait that was reported to the caller.
    fn stop_waiting(&mut self) {
        self.below.told = None;
        for (id, of) in &self.in_flight {
            if matches!(of, StepPurpose::Wait) {
                self.ledger.stop(*id);
            }
        }
    }

    /// Returns whether work would be lost if the run was suspended: an approver asked in this process, or a call that
    /// cannot be repeated, here or in a child run.
    fn stays(&self) -> bool {
        let is_lost = |of: &StepPurpose| match of {
            StepPurpose::Approval => true,
            StepPurpose::Execution(work) => !work.may_leave(),
            _ => false,
        };
        self.below.stays() || self.in_flight.iter().any(|(_, of)| is_lost(of))
    }

    fn tell_to_leave(&mut self) {
        for (run, ask) in std::mem::take(&mut self.below.waiting) {
            self.ledger.tell(ask, StepReply::Leave);
            self.below.leaving.push(run);
        }
    }

    /// Returns the wait of the run and its child runs.
    fn waiting(&self) -> Waiting {
        let machine = self.ledger.machine();
        let own = machine.open_approvals().map(|approval| approval.id.clone());
        let below = machine.open_dispatches().iter().filter_map(|open| open.waits.as_ref());
        let approvals: Vec<_> =
            own.chain(below.clone().flat_map(|waits| waits.approvals.iter().cloned())).collect();
        let own = machine.parked_until().map(|until| (until, machine.parked_reason().cloned()));
        let r#for = match below.into_iter().next() {
            Some(waits) if approvals.is_empty() => waits.r#for,
            None if own.is_some() => WaitFor::Parked,
            _ => WaitFor::Approval,
        };
        let mut waiting = Waiting::new(r#for, approvals).stays(self.stays());
        // The run's own parking is out of date once its child runs are parked anew.
        let parked = self.below.first_parked().or(own);
        (waiting.until, waiting.reason) =
            parked.map_or((None, None), |(until, why)| (Some(until), why));
        waiting
    }

    /// Records the parking of a root run that waits only for parked child runs.
    async fn park_below(&mut self) -> Result<(), AgentError> {
        let Waiting { r#for, until, reason, .. } = self.waiting();
        let machine = self.ledger.machine();
        let (WaitFor::Parked, Some(until)) = (r#for, until) else { return Ok(()) };
        if machine.parked_until() == Some(until) {
            return Ok(());
        }
        // A child run without a record may not report a reason.
        let reason = reason.unwrap_or(Code::new(code::PROVIDER_RATE_LIMITED));
        let parked = RunParked::new(until, reason, PARKED_BELOW);
        let facts = self.facts_of_below(parked);
        self.ledger.step(facts).await
    }

    /// Continues a parked run that is due now.
    pub(super) async fn unpark(&mut self) -> Result<(), AgentError> {
        let resumed = self.approvals.take_resumed();
        let resumed = resumed.unwrap_or_else(|| RunResumed::new(RUNTIME));
        let resumed = self.ledger.fact(resumed);
        self.ledger.step([resumed]).await
    }

    /// Returns the time at which a parked child run continues by itself. A parked root is resumed from outside instead.
    pub(super) fn wakes_from_parking(&self) -> Option<Timestamp> {
        self.effects.caller()?;
        self.ledger.machine().parked_until()
    }

    /// Returns whether an execution only waits for its child runs. Child runs that were not dispatched again since the
    /// run was suspended are ignored.
    pub(super) fn waits_below(&self, work: &RunningExecution) -> bool {
        let open = self.ledger.machine().open_dispatches().iter();
        let of_call = open.filter(|open| open.call_id == *work.call_id());
        let mut at_work = of_call.filter(|open| self.tools.is_taken_up(&open.run)).peekable();
        at_work.peek().is_some() && at_work.all(|open| self.below.is_waiting(&open.run))
    }

    /// Handles the request of a step.
    pub(super) async fn handle_ask(
        &mut self,
        id: AskId,
        ask: StepRequest,
    ) -> Result<(), AgentError> {
        match ask {
            StepRequest::Dispatch(wanted) => {
                let child = self.dispatch(*wanted).await?;
                self.ledger.tell(id, StepReply::Child(child.map(Box::new)));
                Ok(())
            }
            StepRequest::NoDispatch { number } => self.dispatch_given_up(number).await,
            StepRequest::Retry { run, attempt } => {
                self.retry_below(&run, attempt).await?;
                self.ledger.tell(id, StepReply::Noted);
                Ok(())
            }
            StepRequest::Wait { run, waiting } => {
                let (until, reason) = (waiting.until, waiting.reason.clone());
                let stays = waiting.stays;
                // A task that a returned child run left behind is never answered: it waits for nothing.
                if self.open_dispatch(&run).is_none() {
                    return Ok(());
                }
                self.note_wait(&run, waiting).await?;
                self.below.waits(&run, id, stays);
                self.below.park(&run, until, reason);
                self.give_more().await?;
                // An execution that waits gives its permit back.
                self.start_tools().await
            }
            StepRequest::GoesOn { run } => {
                self.below.forget(&run);
                Ok(())
            }
            StepRequest::Person(asked) => self.ask_person(id, *asked).await,
            StepRequest::NoPerson { call } => self.withdrawn(&call).await,
            StepRequest::More { run, given } => {
                let found = self.open_dispatch(&run).map(|open| open.grants.clone());
                let Some(grants) = found else {
                    // A task that a returned child run left behind.
                    self.ledger.tell(id, StepReply::More(None));
                    return Ok(());
                };
                // A grant from before the process died is in this record already.
                match grants.get(usize::try_from(given).unwrap_or(usize::MAX)) {
                    Some(granted) => self.ledger.tell(id, StepReply::More(*granted)),
                    None => {
                        let waiting = Waiting::new(WaitFor::Budget, Vec::new());
                        self.note_wait(&run, waiting).await?;
                        self.below.forget(&run);
                        self.below.wanting.push((run, id));
                        self.give_more().await?;
                    }
                }
                Ok(())
            }
        }
    }

    pub(super) fn open_dispatch(&self, run: &RunId) -> Option<&ChildDispatch> {
        self.ledger.machine().open_dispatches().iter().find(|open| open.run == *run)
    }

    /// Records the wait of a child run, unless it is recorded already.
    async fn note_wait(&mut self, run: &RunId, waiting: Waiting) -> Result<(), AgentError> {
        let Some(open) = self.open_dispatch(run) else { return Ok(()) };
        let Waiting { r#for, approvals, .. } = waiting;
        if open
            .waits
            .as_ref()
            .is_some_and(|waits| (waits.r#for, &waits.approvals) == (r#for, &approvals))
        {
            return Ok(());
        }
        let operator = Arc::clone(&open.operator);
        let waiting = OperatorWaiting::new(operator, run.clone(), r#for, approvals);
        let facts = self.facts_of_below(waiting);
        self.ledger.step(facts).await
    }

    /// Gives child runs that want more budget their share of the rest. If nothing is left and no other child run that
    /// could return some is running, they get a refusal. A child run that waits for a person is not waited for: the
    /// decision may never come, and the child run keeps its budget for its own work after it.
    pub(super) async fn give_more(&mut self) -> Result<(), AgentError> {
        while let Some((run, ask)) = self.below.wanting.first().cloned() {
            let more = match self.ledger.machine().grant_more(self.ledger.at(), &run) {
                Ok(grant) => Some(grant.allowance),
                Err(nothing) if !nothing.is_final && self.runs_below() => return Ok(()),
                Err(_) => None,
            };
            self.below.wanting.remove(0);
            let facts = self.facts_of_below(BudgetGranted::new(run, more));
            self.ledger.step(facts).await?;
            self.ledger.tell(ask, StepReply::More(more));
        }
        Ok(())
    }

    /// Returns whether a child run is running without waiting.
    fn runs_below(&self) -> bool {
        let waits = |run: &RunId| {
            self.below.is_waiting(run) || self.below.wanting.iter().any(|(of, _)| of == run)
        };
        let is_at_work = |run: &RunId| self.tools.is_taken_up(run) && !waits(run);
        self.ledger.machine().open_dispatches().iter().any(|open| is_at_work(&open.run))
    }

    /// Returns the input of a child run's event, after the pending `RunResumed` if there is one.
    pub(super) fn facts_of_below(&mut self, fact: impl Into<EventKind>) -> Vec<MachineInput> {
        self.facts_of_people(fact)
    }

    /// Resumes the open dispatches of a suspended run.
    pub(super) async fn take_up_dispatches(&mut self) -> Result<(), AgentError> {
        let machine = self.ledger.machine();
        let mut calls: Vec<CallId> = Vec::new();
        for open in machine.open_dispatches() {
            if !calls.contains(&open.call_id) {
                calls.push(open.call_id.clone());
            }
        }
        for call in calls {
            if let Some(effect) = self.ledger.machine().find_effect(&call) {
                self.rerun(effect, &call).await?;
            }
        }
        Ok(())
    }

    /// Returns the open approvals of child runs, as read from the log.
    pub(super) async fn approvals_below(&mut self) -> Vec<Approval> {
        let open = self.ledger.machine().open_dispatches().iter();
        let waits = open.filter_map(|open| open.waits.as_ref());
        let ids: Vec<_> = waits.flat_map(|waits| waits.approvals.iter().cloned()).collect();
        let Some(log) = self.agent.log.clone().filter(|_| !ids.is_empty()) else {
            return Vec::new();
        };
        let open = log.open_approvals().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the approvals of runs below cannot be read");
            Vec::new()
        });
        let open = open.into_iter().filter(|open| ids.contains(&open.id));
        let approval = |open: OpenApproval| {
            let mut approval = Approval::new(open.id, open.call_id, open.tool, open.arguments);
            (approval.expires_at, approval.approvers) = (open.expires_at, open.approvers);
            (approval.schema, approval.message) = (open.schema, open.message);
            approval
        };
        open.map(approval).collect()
    }

    /// Asks the caller for more budget; without a caller, nothing is granted.
    pub(super) fn ask_budget(&mut self, given: u32) {
        self.start(Step::More(given), StepPurpose::More);
    }

    pub(super) async fn given_more(&mut self, more: Option<Allowance>) -> Result<(), AgentError> {
        let granted = BudgetGranted::new(self.context.run.clone(), more);
        let facts = self.facts_of_below(granted);
        self.ledger.step(facts).await
    }
}
