//! Executions of tools: started, retried, answered.

use std::sync::Arc;
use std::time::Duration;

use backstop_react_machine::{ChildDispatch, EffectId, MachineInput, NoBudgetLeft, ToolRun};
use backstop_tool::{Admitted, DispatchSpec};
use layer0::code;
use layer0::event::EventKind;
use layer0::failure::Failure;
use layer0::id::CallId;

use super::tools::RunningExecution;
use super::{Run, StepPurpose};
use crate::effect::admit;
use crate::error::{AgentError, internal};
use crate::journal::{DispatchRequest, Execution, ExecutionEnd, PendingEvents, Step};

impl Run {
    /// Returns the number of executions that may still begin and are not promised.
    pub(super) fn executions_left(&self) -> u32 {
        self.ledger.machine().executions_left().saturating_sub(self.tools.promised_executions())
    }

    /// Starts executions while permits are free.
    pub(super) async fn start_tools(&mut self) -> Result<(), AgentError> {
        while let Some(execution) = self.tools.due(self.ledger.at()) {
            self.start_execution(execution).await?;
        }
        let places = usize::try_from(self.definition.limits.max_concurrent_tools).unwrap_or(1);
        while let Some((run, admitted)) = self.tools.next(places + self.waiting_below()) {
            self.acted |= !admitted.spec().idempotent;
            let execution = self.execution(run, Some(admitted));
            self.start_execution(execution).await?;
        }
        Ok(())
    }

    /// Returns the first execution of a call in this process.
    pub(super) fn execution(&self, run: ToolRun, admitted: Option<Admitted>) -> Box<Execution> {
        Box::new(Execution {
            run,
            admitted,
            sessions: Arc::clone(&self.sessions),
            depth: self.depth,
            tried: 0,
            elapsed: Duration::ZERO,
            may_repeat: false,
            child: None,
        })
    }

    /// Probes a call that was running when the process died.
    pub(super) fn probe(&mut self, id: EffectId, call_id: &CallId) -> Result<(), AgentError> {
        let mut run = self.recorded_execution(call_id)?;
        run.id = id;
        self.acted = true;
        let admitted = admit(&self.agent, &run.tool, run.arguments.clone()).ok();
        let mut execution = self.execution(run, admitted);
        execution.may_repeat = self.executions_left() > 0;
        let work = self.tools.begin(&execution, false);
        self.start(Step::Probe(execution), StepPurpose::Execution(work));
        Ok(())
    }

    /// Returns the request of an execution in an earlier process.
    pub(super) fn recorded_execution(&mut self, call_id: &CallId) -> Result<ToolRun, AgentError> {
        let unknown = || internal(format!("nothing is known of call `{call_id}`"));
        self.tools.take_recorded(call_id).ok_or_else(unknown)
    }

    /// Returns the number of executions that only wait for their child runs.
    fn waiting_below(&self) -> usize {
        let waits =
            |of: &StepPurpose| matches!(of, StepPurpose::Execution(work) if self.waits_below(work));
        self.in_flight.iter().filter(|(_, of)| waits(of)).count()
    }

    async fn start_execution(&mut self, mut execution: Box<Execution>) -> Result<(), AgentError> {
        let ToolRun { tool, arguments, call_id, .. } = &execution.run;
        if execution.admitted.is_none() {
            // The step answers a call whose tool no longer exists.
            let admitted = admit(&self.agent, tool, arguments.clone());
            execution.admitted = admitted.ok();
        }
        let admitted = execution.admitted.as_ref();
        // The policy repeats a call that is not idempotent only after a failure without effect. A call that only
        // dispatches is left to the orchestrator's retries.
        let is_repeatable = admitted
            .map(Admitted::spec)
            .is_some_and(|spec| spec.idempotent || spec.probe_is_final || !spec.dispatches);
        if let Some(admitted) = admitted
            && let Some(spec) = admitted.dispatch().cloned()
        {
            let DispatchSpec {
                operator,
                input_digest,
                is_priced,
                max_depth,
                can_go_on,
                at_most,
                ..
            } = spec;
            let orchestrator = self.effects.orchestrator();
            let is_priced =
                is_priced && orchestrator.is_none_or(|found| found.is_priced(&operator));
            let can_go_on = can_go_on
                .or_else(|| orchestrator.map(|found| found.can_go_on(&operator)))
                .unwrap_or_default();
            let (call, timeout) = (call_id.clone(), admitted.spec().timeout);
            // A recorded dispatch is answered even if its operator is missing.
            let open = self.ledger.machine().open_dispatches().iter();
            let is_recorded = open.clone().any(|open| open.call_id == *call_id);
            let named = admitted.operator().filter(|_| !is_recorded);
            let missing = named.and_then(|name| self.missing(name));
            let wanted = DispatchRequest {
                call,
                operator,
                input_digest,
                is_priced,
                max_depth,
                unrecorded: !can_go_on,
                at_most,
                parts: None,
                number: 0,
            };
            let mut child = match missing {
                Some(missing) => Err(missing),
                None => self.dispatch(wanted).await?,
            };
            if let Ok(child) = &mut child {
                child.grant.time = child.grant.time.into_iter().chain(timeout).min();
            }
            execution.child = Some(child.map(Box::new));
        }
        execution.may_repeat = is_repeatable && self.executions_left() > 0;
        let spec = execution.admitted.as_ref().map(Admitted::spec);
        let may_leave = spec.is_some_and(|spec| spec.dispatches || spec.idempotent);
        let work = self.tools.begin(&execution, may_leave);
        self.start(Step::Execution(execution), StepPurpose::Execution(work));
        Ok(())
    }

    /// Returns the error of an operator that is not registered under this name; `None` if it is.
    fn missing(&self, operator: &str) -> Option<NoBudgetLeft> {
        let Some(orchestrator) = self.effects.orchestrator() else {
            let message = format!("`{operator}` is called, and the run is not in an orchestrator");
            return Some(NoBudgetLeft::new(code::ORCH_DISPATCH_FAILED, message));
        };
        let unknown = orchestrator.unknown(operator)?;
        let hint = unknown.hint().map(|hint| format!("; {hint}"));
        let message = format!("{unknown}{}", hint.unwrap_or_default());
        Some(NoBudgetLeft::new(unknown.code(), message))
    }

    /// Records the result of an execution, and starts calls that waited for its permit.
    pub(super) async fn execution_ended(
        &mut self,
        work: RunningExecution,
        end: ExecutionEnd,
    ) -> Result<(), AgentError> {
        let ExecutionEnd { mut returned, facts: PendingEvents(facts), is_left, again } = end;
        let now = self.ledger.at();
        if is_left {
            self.tools.end(&work, None);
            self.leave_dispatches(&work);
            return Ok(());
        }
        let of_call = |open: &ChildDispatch| open.call_id == *work.call_id();
        let orphans = Box::pin(self.end_orphans(&returned, of_call)).await?;
        returned.extend(orphans);
        let again = again.filter(|_| !self.tools.is_settled(work.call_id()));
        self.tools.end(&work, again.map(|(delay, execution)| (now.after(delay), execution)));
        if facts.iter().any(stops_the_run) {
            self.stop_steps(code::HOOK_ABORTED).await?;
            let orphans = Box::pin(self.end_orphans(&returned, |_| true)).await?;
            returned.extend(orphans);
        }
        let at = self.ledger.at();
        let answer = |fact| match fact {
            answer @ EventKind::ToolResponded(_) => MachineInput::answer(at, work.effect, answer),
            note => MachineInput::fact(at, note),
        };
        for returned in &mut returned {
            self.end_left_open(returned).await?;
            self.below.mark_returned(&returned.run);
        }
        let resumed = self.approvals.take_resumed().map(EventKind::from);
        let returned = returned.into_iter().map(EventKind::from);
        let facts = resumed.into_iter().chain(returned).chain(facts).map(answer);
        self.ledger.step(facts).await?;
        self.record_late().await?;
        self.settle_ended(&work).await?;
        self.give_more().await?;
        self.start_tools().await
    }
}

/// Returns whether an entry is of a hook that ends the run. The steps in flight are stopped first.
pub(super) const fn stops_the_run(fact: &EventKind) -> bool {
    match fact {
        EventKind::HookAborted(_) => true,
        EventKind::HookFailed(failed) => !failed.fail_open,
        _ => false,
    }
}
