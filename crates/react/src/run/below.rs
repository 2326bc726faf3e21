//! Runs below this one: dispatched, waiting, given more, ended.

use std::sync::Arc;

use backstop_event_log::OpenApproval;
use backstop_react_machine::{Approval, Dispatch, Grant, Input, NothingLeft};
use layer0::event::{
    BudgetGranted, EventKind, OperatorDispatched, OperatorWaiting, RunParked, RunResumed, WaitFor,
};
use layer0::id::{CallId, RunId};
use layer0::operator::Waiting;
use layer0::usage::Allowance;
use layer0::{Code, Timestamp, code};

use super::tools::AtWork;
use super::{InFlight, Run};
use crate::error::{AgentError, internal};
use crate::journal::{Ask, AskId, Child, Step, Told, Wanted};

/// Who goes on with a run that was parked.
const RUNTIME: &str = "backstop";

/// What a run waits for that only waits for runs below which are parked.
const PARKED_BELOW: &str = "runs below are parked";

impl Run {
    /// Rests where nothing is in flight but what waits. Returns whether the run leaves.
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
                    // A person is asked who need not be any more.
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
        let has_told = self.in_flight.iter().any(|(_, of)| matches!(of, InFlight::Wait));
        // An approval that stands in no log cannot be decided.
        let is_undecidable =
            self.agent.log.is_none() && self.ledger.machine().open_approvals().next().is_some();
        if self.effects.caller().is_some() && !is_undecidable {
            if !has_told {
                let waiting = self.waiting();
                self.start(Step::Wait(waiting), InFlight::Wait);
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

    /// Goes on after it waited: the caller is told so.
    pub(super) fn go_on(&mut self) {
        self.below.leaves = false;
        for (id, of) in &self.in_flight {
            if matches!(of, InFlight::Wait) {
                self.ledger.stop(*id);
            }
        }
    }

    /// Would something be lost if the run left: a person that is asked in this process, or a call that cannot
    /// be made again, here or below?
    fn stays(&self) -> bool {
        let is_lost = |of: &InFlight| match of {
            InFlight::Approval => true,
            InFlight::Execution(work) => !work.may_leave(),
            _ => false,
        };
        self.below.stays() || self.in_flight.iter().any(|(_, of)| is_lost(of))
    }

    fn tell_to_leave(&mut self) {
        for (run, ask) in std::mem::take(&mut self.below.waiting) {
            self.ledger.tell(ask, Told::Leave);
            self.below.leaving.push(run);
        }
    }

    /// Returns what the run and those below it wait for.
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
        // What a run was parked for that waits below is over once they are parked anew.
        let parked = self.below.first_parked().or(own);
        (waiting.until, waiting.reason) =
            parked.map_or((None, None), |(until, why)| (Some(until), why));
        waiting
    }

    /// Records until when the run is parked that nothing dispatched, where all that it waits for are runs
    /// below that are.
    async fn park_below(&mut self) -> Result<(), AgentError> {
        let Waiting { r#for, until, reason, .. } = self.waiting();
        let machine = self.ledger.machine();
        let (WaitFor::Parked, Some(until)) = (r#for, until) else { return Ok(()) };
        if machine.parked_until() == Some(until) {
            return Ok(());
        }
        // What keeps no record may not say why.
        let reason = reason.unwrap_or(Code::new(code::PROVIDER_RATE_LIMITED));
        let parked = RunParked::new(until, reason, PARKED_BELOW);
        let facts = self.facts_of_below(parked);
        self.ledger.step(facts).await
    }

    /// Goes on with a run that was parked until now.
    pub(super) async fn unpark(&mut self) -> Result<(), AgentError> {
        let resumed = self.approvals.take_resumed();
        let resumed = resumed.unwrap_or_else(|| RunResumed::new(RUNTIME));
        let resumed = self.ledger.fact(resumed);
        self.ledger.step([resumed]).await
    }

    /// Returns when a run that was dispatched goes on by itself; one that was not is resumed then.
    pub(super) fn wakes_from_parking(&self) -> Option<Timestamp> {
        self.effects.caller()?;
        self.ledger.machine().parked_until()
    }

    /// Does an execution do nothing but wait for what it dispatched?
    pub(super) fn waits_below(&self, work: &AtWork) -> bool {
        let open = self.ledger.machine().open_dispatches().iter();
        let mut of_call = open.filter(|open| open.call_id == *work.call_id()).peekable();
        of_call.peek().is_some() && of_call.all(|open| self.below.is_waiting(&open.run))
    }

    /// Takes in what a step asks.
    pub(super) async fn asked(&mut self, id: AskId, ask: Ask) -> Result<(), AgentError> {
        match ask {
            Ask::Dispatch(wanted) => {
                let child = self.dispatch(*wanted).await?;
                self.ledger.tell(id, Told::Child(child.map(Box::new)));
                Ok(())
            }
            Ask::Retry { run, attempt } => {
                self.retry_below(&run, attempt).await?;
                self.ledger.tell(id, Told::Noted);
                Ok(())
            }
            Ask::Wait { run, waiting } => {
                let (until, reason) = (waiting.until, waiting.reason.clone());
                let stays = waiting.stays;
                self.note_wait(&run, waiting).await?;
                self.below.waits(&run, id, stays);
                self.below.park(&run, until, reason);
                self.give_more().await?;
                // What waits gives its permit back.
                self.start_tools().await
            }
            Ask::GoesOn { run } => {
                self.below.forget(&run);
                Ok(())
            }
            Ask::Person(asked) => self.ask_person(id, *asked).await,
            Ask::NoPerson { call } => self.withdrawn(&call).await,
            Ask::More { run, given } => {
                let found = self.open_dispatch(&run).map(|open| open.grants.clone());
                let Some(grants) = found else { return Ok(()) };
                // What was given before its process died stands in this record already.
                match grants.get(usize::try_from(given).unwrap_or(usize::MAX)) {
                    Some(granted) => self.ledger.tell(id, Told::More(*granted)),
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

    fn open_dispatch(&self, run: &RunId) -> Option<&Dispatch> {
        self.ledger.machine().open_dispatches().iter().find(|open| open.run == *run)
    }

    /// Records what a run below waits for, unless the record says so already.
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

    /// Gives those that want more their share of what is left. Where nothing is left and nothing else below
    /// runs that could give some back, they are told so.
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
            self.ledger.tell(ask, Told::More(more));
        }
        Ok(())
    }

    /// Does anything run below that does not wait?
    fn runs_below(&self) -> bool {
        let waits = |run: &RunId| {
            self.below.is_waiting(run) || self.below.wanting.iter().any(|(of, _)| of == run)
        };
        self.ledger.machine().open_dispatches().iter().any(|open| !waits(&open.run))
    }

    /// Records a run below this one, if anything is left that it may use. One that is recorded and has not
    /// returned is gone on with.
    pub(super) async fn dispatch(
        &mut self,
        wanted: Wanted,
    ) -> Result<Result<Child, NothingLeft>, AgentError> {
        let Wanted {
            call,
            operator,
            input_digest,
            is_priced,
            max_depth,
            unrecorded,
            at_most,
            parts,
        } = wanted;
        let machine = self.ledger.machine();
        let open = machine.open_dispatches().iter();
        let mut recorded = open.filter(|open| open.call_id == call && open.operator == operator);
        if let Some(open) = recorded.find(|open| !self.tools.is_taken_up(&open.run)) {
            let (run, attempt, allowance) = (open.run.clone(), open.attempt, open.allowance);
            let unrecorded = open.unrecorded;
            let is_recorded = open.is_known && !unrecorded;
            let time = machine.deadline().map(|deadline| deadline.since(self.ledger.at()));
            self.tools.take_up(run.clone());
            let root = self.root.clone();
            let grant = Grant::new(allowance, time);
            let goes_on = true;
            return Ok(Ok(Child {
                run,
                operator,
                root,
                attempt,
                goes_on,
                is_recorded,
                unrecorded,
                grant,
                labels: Arc::clone(self.ledger.machine().labels()),
            }));
        }
        if let Some(max) = max_depth.filter(|max| self.depth >= *max) {
            return Ok(Err(NothingLeft::too_deep(self.depth + 1, max)));
        }
        let mut grant = match machine.grant(self.ledger.at(), &call, is_priced, parts) {
            Ok(grant) => grant,
            Err(nothing) => return Ok(Err(nothing)),
        };
        if let Some(at_most) = &at_most {
            match grant.at_most(at_most) {
                Ok(less) => grant = less,
                Err(nothing) => return Ok(Err(nothing)),
            }
        }
        let run = self.ledger.new_id().await;
        self.tools.take_up(run.clone());
        let mut dispatched = OperatorDispatched::new(
            Arc::clone(&operator),
            run.clone(),
            1,
            input_digest,
            Box::new(grant.allowance),
        );
        (dispatched.call_id, dispatched.unrecorded) = (Some(call), unrecorded);
        dispatched.at_most = at_most.map(Box::new);
        let facts = self.facts_of_below(dispatched);
        self.ledger.step(facts).await?;
        let root = self.root.clone();
        let (attempt, goes_on, is_recorded) = (1, false, false);
        let labels = Arc::clone(self.ledger.machine().labels());
        Ok(Ok(Child {
            run,
            operator,
            root,
            attempt,
            goes_on,
            is_recorded,
            unrecorded,
            grant,
            labels,
        }))
    }

    /// Records that a run below is tried again.
    async fn retry_below(&mut self, run: &RunId, attempt: u32) -> Result<(), AgentError> {
        let Some(open) = self.open_dispatch(run).filter(|open| open.attempt < attempt) else {
            return Ok(());
        };
        let mut dispatched = OperatorDispatched::new(
            Arc::clone(&open.operator),
            run.clone(),
            attempt,
            Arc::clone(&open.input_digest),
            Box::new(open.allowance),
        );
        dispatched.call_id = Some(open.call_id.clone());
        (dispatched.at_most, dispatched.unrecorded) = (open.at_most.map(Box::new), open.unrecorded);
        let facts = self.facts_of_below(dispatched);
        self.ledger.step(facts).await
    }

    /// Returns a fact of a run below, behind the note that this one goes on after it waited.
    fn facts_of_below(&mut self, fact: impl Into<EventKind>) -> Vec<Input> {
        self.facts_of_people(fact)
    }

    /// Goes on with what was dispatched when the run was left.
    pub(super) async fn take_up_dispatches(&mut self) -> Result<(), AgentError> {
        let machine = self.ledger.machine();
        let mut calls: Vec<CallId> = Vec::new();
        for open in machine.open_dispatches() {
            if !calls.contains(&open.call_id) {
                calls.push(open.call_id.clone());
            }
        }
        for call in calls {
            if let Some(effect) = self.ledger.machine().effect_of(&call) {
                self.rerun(effect, &call).await?;
            }
        }
        Ok(())
    }

    /// Returns the approvals that are open below, as the log has them.
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

    /// Asks the caller for more of its budget; where there is none, nothing is left.
    pub(super) fn ask_budget(&mut self, given: u32) {
        self.start(Step::More(given), InFlight::More);
    }

    pub(super) async fn given_more(&mut self, more: Option<Allowance>) -> Result<(), AgentError> {
        let granted = BudgetGranted::new(self.context.run.clone(), more);
        let facts = self.facts_of_below(granted);
        self.ledger.step(facts).await
    }
}
