//! Executions of tools: started, tried again, answered.

use std::sync::Arc;
use std::time::Duration;

use backstop_react_machine::{Input, ToolRun};
use backstop_tool::DispatchSpec;
use layer0::code;
use layer0::event::EventKind;

use super::tools::AtWork;
use super::{InFlight, Run};
use crate::effect::admit;
use crate::error::AgentError;
use crate::journal::{Execution, ExecutionEnd, Notes, Step, Wanted};

impl Run {
    /// Returns how many executions may still begin that none is promised to.
    pub(super) fn executions_left(&self) -> u32 {
        self.ledger.machine().executions_left().saturating_sub(self.tools.promised())
    }

    /// Starts executions while there are free places.
    pub(super) async fn start_tools(&mut self) -> Result<(), AgentError> {
        while let Some(execution) = self.tools.due(self.ledger.at()) {
            self.start_execution(execution).await?;
        }
        let places = usize::try_from(self.definition.limits.max_concurrent_tools).unwrap_or(1);
        while let Some((run, admitted)) = self.tools.next(places) {
            self.acted |= !admitted.spec().idempotent;
            let execution = Execution {
                run,
                admitted: Some(admitted),
                sessions: Arc::clone(&self.sessions),
                depth: self.depth,
                tried: 0,
                elapsed: Duration::ZERO,
                may_repeat: false,
                child: None,
            };
            self.start_execution(Box::new(execution)).await?;
        }
        Ok(())
    }

    async fn start_execution(&mut self, mut execution: Box<Execution>) -> Result<(), AgentError> {
        let ToolRun { tool, arguments, call_id, .. } = &execution.run;
        if execution.admitted.is_none() {
            // A tool that is not there any more is answered by its step.
            let admitted = admit(&self.agent, tool, arguments.clone());
            execution.admitted = admitted.ok();
        }
        let admitted = execution.admitted.as_ref();
        let is_idempotent = admitted.is_some_and(|admitted| admitted.spec().idempotent);
        if let Some(admitted) = admitted
            && let Some(DispatchSpec { operator, input_digest, is_priced, max_depth, .. }) =
                admitted.dispatch().cloned()
        {
            let orchestrator = self.effects.orchestrator();
            let is_priced =
                is_priced && orchestrator.is_none_or(|found| found.is_priced(&operator));
            let (call, timeout) = (call_id.clone(), admitted.spec().timeout);
            let wanted =
                Wanted { call, operator, input_digest, is_priced, max_depth, at_most: None };
            let mut child = self.dispatch(wanted).await?;
            if let Ok(child) = &mut child {
                child.grant.time = child.grant.time.into_iter().chain(timeout).min();
            }
            execution.child = Some(child.map(Box::new));
        }
        execution.may_repeat = is_idempotent && self.executions_left() > 0;
        let dispatches =
            execution.admitted.as_ref().is_some_and(|admitted| admitted.spec().dispatches);
        let work = self.tools.begin(&execution, dispatches);
        self.start(Step::Execution(execution), InFlight::Execution(work));
        Ok(())
    }

    /// Records what an execution came to, and starts what waited for its place.
    pub(super) async fn execution_ended(
        &mut self,
        work: AtWork,
        end: ExecutionEnd,
    ) -> Result<(), AgentError> {
        let ExecutionEnd { returned, facts: Notes(facts), is_left, again } = end;
        let now = self.ledger.at();
        if is_left {
            self.tools.end(&work, None);
            return Ok(());
        }
        self.tools.end(&work, again.map(|(delay, execution)| (now.after(delay), execution)));
        if facts.iter().any(stops_the_run) {
            self.stop_steps(code::HOOK_ABORTED).await?;
        }
        let at = self.ledger.at();
        let answer = |fact| match fact {
            answer @ EventKind::ToolResponded(_) => Input::answer(at, work.effect, answer),
            note => Input::fact(at, note),
        };
        for returned in &returned {
            self.below.returned(&returned.run);
        }
        let resumed = self.approvals.take_resumed().map(EventKind::from);
        let returned = returned.into_iter().map(EventKind::from);
        let facts: Vec<_> = resumed.into_iter().chain(returned).chain(facts).map(answer).collect();
        self.ledger.step(facts).await?;
        self.give_more().await?;
        self.start_tools().await
    }
}

/// Does a hook end the run with this? What is in flight is stopped first.
const fn stops_the_run(fact: &EventKind) -> bool {
    match fact {
        EventKind::HookAborted(_) => true,
        EventKind::HookFailed(failed) => !failed.fail_open,
        _ => false,
    }
}
