//! Tool batches: which calls may run, and how many at once.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use layer0::event::ToolRequested;
use react_machine::{BUDGET_CANCELLED, Input, Machine, ToolBatch};
use tool::{ToolError, failed_text};

use crate::driver::{Driver, failing};
use crate::running::panic_text;
use crate::tool_run::run_tool;

impl Driver {
    /// Decides which calls of a batch may run, and answers the others.
    pub(crate) fn admit(&mut self, machine: &Machine, batch: &ToolBatch) -> Vec<Input> {
        let mut execution = machine.usage().tool_calls;
        let last = execution.saturating_add(batch.max_executions);
        let mut facts = Vec::with_capacity(batch.calls.len());
        for call in batch.calls.iter() {
            let arguments = call.arguments.clone();
            let (tools, grants) = (&self.agent.tools, &self.agent.grants);
            // What a call needs is asked of the tool's own code.
            let admit = AssertUnwindSafe(|| tools.admit(&call.name, arguments, grants));
            let admitted = std::panic::catch_unwind(admit)
                .unwrap_or_else(|panic| Err(ToolError::Panicked(panic_text(&*panic))));
            let admitted = admitted.and_then(|admitted| {
                match machine.repeated_failure(&call.name, &admitted.arguments) {
                    Some((code, count)) => Err(ToolError::repeated_failure(code, count)),
                    None if execution >= last => Err(ToolError::Cancelled),
                    None => Ok(admitted),
                }
            });
            let fact = match admitted {
                Ok(admitted) => {
                    execution += 1;
                    let requested = ToolRequested {
                        call_id: call.id.clone(),
                        tool: Arc::clone(&call.name),
                        arguments: admitted.arguments.clone(),
                        execution,
                    };
                    self.admitted.insert(call.id.clone(), admitted);
                    requested.into()
                }
                Err(error) => {
                    let text = match error.kind() {
                        ToolError::NotFound(name) => self.agent.tools.missing_text(name),
                        ToolError::Cancelled => BUDGET_CANCELLED.to_owned(),
                        _ => failed_text(&call.name, &error),
                    };
                    failing(&self.agent, &self.run, &self.session, &call.id, &call.name, 0)
                        .respond(&error, &text)
                }
            };
            facts.push(self.fact(fact));
        }
        facts
    }

    /// Starts queued executions while there are free places.
    pub(crate) fn start_tools(&mut self) {
        let places =
            usize::try_from(self.agent.definition.limits.max_concurrent_tools).unwrap_or(1);
        while self.running.len() < places
            && let Some(run) = self.queued.pop_front()
        {
            let Some(admitted) = self.admitted.remove(&run.call_id) else { continue };
            self.acted |= !admitted.tool().spec().idempotent;
            let (agent, name, session) =
                (Arc::clone(&self.agent), self.run.clone(), self.session.clone());
            let noted = self.noted.clone();
            self.running.push(Box::pin(run_tool(agent, name, session, run, admitted, noted)));
        }
    }
}
