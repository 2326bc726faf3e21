//! Executions of tools: started, tried again, answered.

use std::sync::Arc;
use std::time::Duration;

use backstop_react_machine::{Input, ToolRun};
use backstop_tool::DispatchSpec;
use layer0::code;
use layer0::event::{EventKind, OperatorDispatched};
use layer0::id::CallId;

use super::tools::AtWork;
use super::{InFlight, Run};
use crate::effect::admit;
use crate::error::AgentError;
use crate::journal::{Child, Execution, ExecutionEnd, Notes, Step};

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
        if let Some(dispatch) = admitted.and_then(|admitted| admitted.dispatch()).cloned() {
            execution.child = Some(self.dispatch(call_id.clone(), dispatch).await?);
        }
        execution.may_repeat = is_idempotent && self.executions_left() > 0;
        let work = self.tools.begin(&execution);
        self.start(Step::Execution(execution), InFlight::Execution(work));
        Ok(())
    }

    /// Records a run below this one, if anything is left that it may use.
    async fn dispatch(&mut self, call: CallId, spec: DispatchSpec) -> Result<Child, AgentError> {
        let DispatchSpec { operator, input_digest, is_priced, .. } = spec;
        let run = self.ledger.new_id().await;
        let grant = self.ledger.machine().grant(self.ledger.at(), is_priced);
        if let Ok(grant) = &grant {
            let mut dispatched = OperatorDispatched::new(
                Arc::clone(&operator),
                run.clone(),
                self.tools.dispatch(&call),
                input_digest,
                Box::new(grant.allowance),
            );
            dispatched.call_id = Some(call);
            let dispatched = self.ledger.fact(dispatched);
            self.ledger.step([dispatched]).await?;
        }
        Ok(Child { run, operator, root: self.root.clone(), grant })
    }

    /// Records what an execution came to, and starts what waited for its place.
    pub(super) async fn execution_ended(
        &mut self,
        work: AtWork,
        end: ExecutionEnd,
    ) -> Result<(), AgentError> {
        let ExecutionEnd { returned, facts: Notes(facts), again } = end;
        let now = self.ledger.at();
        self.tools.end(&work, again.map(|(delay, execution)| (now.after(delay), execution)));
        if facts.iter().any(stops_the_run) {
            self.stop_steps(code::HOOK_ABORTED).await?;
        }
        let at = self.ledger.at();
        let answer = |fact| match fact {
            answer @ EventKind::ToolResponded(_) => Input::answer(at, work.effect, answer),
            note => Input::fact(at, note),
        };
        let facts = returned
            .map(|returned| EventKind::from(*returned))
            .into_iter()
            .chain(facts)
            .map(answer);
        self.ledger.step(facts).await?;
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
