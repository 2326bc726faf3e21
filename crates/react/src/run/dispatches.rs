//! Dispatches of a run: recorded before their operators start, and returned even if nothing waits for them.

use std::sync::Arc;

use backstop_react_machine::{ChildDispatch, Grant, NoBudgetLeft};
use layer0::event::{EventKind, OperatorDispatched, OperatorReturned};
use layer0::id::RunId;
use layer0::stop::Outcome;
use layer0::usage::Usage;
use layer0::{Code, code};

use super::Run;
use super::session::dead_dispatch;
use crate::error::AgentError;
use crate::journal::{Child, DispatchRequest};

impl Run {
    /// Records a new child run if budget is left for it, or resumes a recorded one that has not returned.
    pub(super) async fn dispatch(
        &mut self,
        wanted: DispatchRequest,
    ) -> Result<Result<Child, NoBudgetLeft>, AgentError> {
        if !self.ledger.machine().is_running(&wanted.call) {
            // A task that the tool left behind dispatches.
            let over = format!("call `{}` is over", wanted.call);
            return Ok(Err(NoBudgetLeft::new(code::ORCH_DISPATCH_FAILED, over)));
        }
        if let Some(open) = self.recorded_dispatch(&wanted) {
            let child = self.resumed_child(open);
            self.tools.take_up(child.run.clone(), wanted.number, false);
            return Ok(Ok(child));
        }
        let grant = match self.grant(&wanted) {
            Ok(grant) => grant,
            Err(nothing) => return Ok(Err(nothing)),
        };
        let run = self.ledger.new_id().await;
        self.tools.take_up(run.clone(), wanted.number, true);
        let DispatchRequest { call, operator, input_digest, unrecorded, at_most, .. } = wanted;
        let (name, allowance) = (Arc::clone(&operator), Box::new(grant.allowance));
        let mut dispatched = OperatorDispatched::new(name, run.clone(), 1, input_digest, allowance);
        (dispatched.call_id, dispatched.unrecorded) = (Some(call), unrecorded);
        dispatched.at_most = at_most.map(Box::new);
        let facts = self.facts_of_below(dispatched);
        self.ledger.step(facts).await?;
        Ok(Ok(Child {
            run,
            operator,
            root: self.root.clone(),
            attempt: 1,
            goes_on: false,
            is_recorded: false,
            unrecorded,
            grant,
            labels: Arc::clone(self.ledger.machine().labels()),
        }))
    }

    /// Finds the recorded dispatch that a call repeats: the first with the same operator and input that is not resumed
    /// yet. A tool that names its only dispatch before it begins gets the first of its call, whatever the input.
    fn recorded_dispatch(&self, wanted: &DispatchRequest) -> Option<&ChildDispatch> {
        let open = self.ledger.machine().open_dispatches().iter();
        let mut left = open.filter(|open| {
            open.call_id == wanted.call
                && open.operator == wanted.operator
                && !self.tools.is_taken_up(&open.run)
        });
        let is_named_before = wanted.number == 0;
        let first = left.clone().next().filter(|_| is_named_before);
        left.find(|open| open.input_digest == wanted.input_digest).or(first)
    }

    fn resumed_child(&self, open: &ChildDispatch) -> Child {
        let machine = self.ledger.machine();
        // time of day: both are of the clock of the run, which is not set.
        let time = machine.deadline().map(|deadline| deadline.since(self.ledger.at()));
        Child {
            run: open.run.clone(),
            operator: Arc::clone(&open.operator),
            root: self.root.clone(),
            attempt: open.attempt,
            goes_on: true,
            is_recorded: open.is_known && !open.unrecorded,
            unrecorded: open.unrecorded,
            grant: Grant::new(open.allowance, time),
            labels: Arc::clone(machine.labels()),
        }
    }

    /// Returns the budget of a new dispatch.
    fn grant(&self, wanted: &DispatchRequest) -> Result<Grant, NoBudgetLeft> {
        let DispatchRequest { call, is_priced, max_depth, at_most, parts, .. } = wanted;
        if let Some(max) = max_depth.filter(|max| self.depth >= *max) {
            return Err(NoBudgetLeft::too_deep(self.depth.saturating_add(1), max));
        }
        let machine = self.ledger.machine();
        let grant = machine.grant(self.ledger.at(), call, *is_priced, *parts)?;
        match at_most {
            Some(at_most) => grant.at_most(at_most),
            None => Ok(grant),
        }
    }

    /// Records another attempt of a child run.
    pub(super) async fn retry_below(
        &mut self,
        run: &RunId,
        attempt: u32,
    ) -> Result<(), AgentError> {
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

    /// Handles a dispatch that its tool gave up before it got the run id. A new child run never begins; one recorded
    /// earlier is left to another dispatch of the call, or to the end of the call.
    pub(super) async fn dispatch_given_up(&mut self, number: u64) -> Result<(), AgentError> {
        let Some(run) = self.tools.dispatched_as(number) else { return Ok(()) };
        if !self.tools.is_new(&run) {
            self.tools.let_go(&run);
            return Ok(());
        }
        let Some(open) = self.open_dispatch(&run) else { return Ok(()) };
        let returned = not_begun(Arc::clone(&open.operator), run);
        self.below.mark_returned(&returned.run);
        let facts = self.facts_of_below(returned);
        self.ledger.step(facts).await?;
        self.give_more().await
    }

    /// Marks the dispatches of a suspended call as begun: another process resumes them.
    pub(super) fn leave_dispatches(&mut self, work: &super::tools::RunningExecution) {
        for open in self.ledger.machine().open_dispatches() {
            if open.call_id == *work.call_id() {
                self.tools.mark_begun(&open.run);
            }
        }
    }

    /// Ends open dispatches that nothing in this process waits for, and returns the outcome of each: those that never
    /// began, and those of an earlier process that were not dispatched again. Dispatches in `returned` are skipped.
    pub(super) async fn end_orphans(
        &mut self,
        returned: &[OperatorReturned],
        is_meant: impl Fn(&ChildDispatch) -> bool,
    ) -> Result<Vec<OperatorReturned>, AgentError> {
        let has_returned = |run: &RunId| returned.iter().any(|returned| returned.run == *run);
        let open = self.ledger.machine().open_dispatches().iter();
        let orphans: Vec<_> = open
            .filter(|open| is_meant(open) && !has_returned(&open.run))
            .map(|open| (Arc::clone(&open.operator), open.run.clone()))
            .collect();
        let mut ended = Vec::new();
        for (operator, run) in orphans {
            let log = self.agent.log.clone().filter(|_| !self.tools.is_new(&run));
            self.below.mark_returned(&run);
            ended.push(match log {
                Some(log) => {
                    tracing::warn!(%run, %operator, "a run below is not dispatched again; it ends");
                    let dispatch = (operator, run);
                    dead_dispatch(&self.agent, &log, &self.context.session, dispatch).await?
                }
                None => not_begun(operator, run),
            });
        }
        Ok(ended)
    }

    /// Ends and records all open dispatches, before the run ends; its steps have ended.
    pub(super) async fn return_orphans(&mut self) -> Result<(), AgentError> {
        let returned = Box::pin(self.end_orphans(&[], |_| true)).await?;
        if returned.is_empty() {
            return Ok(());
        }
        let resumed = self.approvals.take_resumed().map(EventKind::from);
        let facts = resumed.into_iter().chain(returned.into_iter().map(EventKind::from));
        let facts: Vec<_> = facts.map(|fact| self.ledger.fact(fact)).collect();
        self.ledger.step(facts).await
    }
}

/// Returns the event of a child run that was given up before it began.
fn not_begun(operator: Arc<str>, run: RunId) -> OperatorReturned {
    let reason = Some(Code::new(code::RUN_CANCELLED));
    OperatorReturned::new(operator, run, Outcome::Cancelled, reason, Usage::free())
}
