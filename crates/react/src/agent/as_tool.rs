use std::sync::Arc;

use async_trait::async_trait;
use backstop_orchestrator::LocalOrchestrator;
use backstop_tool::{Arguments, DispatchSpec, Tool, ToolContext, ToolError};
use layer0::error::OrchError;
use layer0::failure::{Chain, Failure, sources};
use layer0::operator::{Answer, Context, Task};
use layer0::stop::Stop;
use layer0::text::plain;
use layer0::{JsonText, Orchestrator, ToolSpec};

use crate::agent::Agent;
use crate::dispatch::Dispatcher;
use crate::error::RunFailure;
use crate::input_form::InputForm;

/// An agent as a tool of another agent; made by [`Agent::as_tool`].
///
/// The child run is recorded under the caller's session, with the caller's run as its parent. It gets a share of the
/// rest of the caller's budget, and the caller's deadline; its usage counts for the caller too. Several calls in one
/// answer run concurrently. A failed run is retried by the caller's orchestrator, or by its own orchestrator if the
/// caller has none. If it fails for good, the call fails with the failure's code, and its whole chain is the tool's
/// error. If the call is given up because the caller is stopped, the run is cancelled, which it records itself. If it
/// waits for a person, the call stays open; if the process dies, the run is resumed with the caller.
#[derive(Debug, Clone)]
pub struct AgentTool {
    agent: Agent,
    spec: ToolSpec,
    form: InputForm,
    /// Orchestrator for callers without one.
    own: LocalOrchestrator,
}

impl Agent {
    /// Returns the agent as a tool, under its name. The calling model reads the purpose of the agent in the
    /// description.
    ///
    /// Its own tools may act, so it is not idempotent. Its time is limited by the caller's time and its own budget, and
    /// also by [`AgentTool::timeout`] if set.
    pub fn as_tool(&self, description: impl Into<Arc<str>>) -> AgentTool {
        let schema = self.inner.input_schema();
        let (spec, form) =
            (InputForm::spec(self.name(), description, schema), InputForm::by(schema));
        let own = LocalOrchestrator::builder()
            .clock(Arc::clone(&self.inner.clock))
            .jitter(self.inner.jitter.clone())
            .build_unnamed();
        AgentTool { agent: self.clone(), spec, form, own }
    }
}

impl AgentTool {
    /// Sets the time limit of one run of the agent, without the time it waits for people.
    #[must_use]
    pub fn timeout(mut self, timeout: std::time::Duration) -> Self {
        self.spec = self.spec.timeout(timeout);
        self
    }
}

#[async_trait]
impl Tool for AgentTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn dispatch(&self, arguments: &Arguments) -> Option<DispatchSpec> {
        let definition = &self.agent.inner.definition;
        let is_priced = definition.price.is_some();
        let spec =
            DispatchSpec::new(Arc::clone(&definition.name), self.form.digest(arguments), is_priced);
        let can_go_on = self.agent.inner.log.is_some();
        Some(spec.max_depth(definition.budget.max_depth).can_go_on(can_go_on))
    }

    fn checks_arguments(&self) -> bool {
        self.form.checks_arguments()
    }

    async fn call(
        &self,
        arguments: &Arguments,
        context: &ToolContext,
    ) -> Result<JsonText, ToolError> {
        let task = Task::json(self.form.input(arguments)?);
        let operator = Arc::new(self.agent.clone());
        let result = match Dispatcher::from_context(context) {
            Some(dispatcher) => dispatcher.perform_or(operator, task, &self.own).await,
            // Outside of a run, there is no dispatcher.
            None => {
                let mut above = Context::root();
                above.session = Some(context.session.clone());
                (above.parent, above.depth) =
                    (Some(context.run.clone()), context.depth.saturating_add(1));
                self.own.perform(operator, task, above).await
            }
        };
        tool_answer(result)
    }
}

/// Returns the tool result for an operator's answer.
pub(crate) fn tool_answer(result: Result<Answer, OrchError>) -> Result<JsonText, ToolError> {
    let answer = match result {
        Ok(answer) => answer,
        Err(OrchError::OperatorError(error)) => return Err(to_tool_error(&error)),
        Err(error) => return Err(to_tool_error(&error)),
    };
    match answer.stop {
        Stop::Completed => Ok(JsonText::from(&answer.output)),
        stop => {
            let reason = stop.reason().map(|code| code.to_string()).unwrap_or_default();
            let output = plain(&answer.output);
            let text = format!("stopped before the end ({reason}): {output}");
            Err(ToolError::ExecutionFailed(text).with_code(reason))
        }
    }
}

fn to_tool_error<E: Failure + 'static>(error: &E) -> ToolError {
    // Errors that wrap the failure of a run add no information.
    let run = sources(error).find_map(|cause| cause.downcast_ref::<RunFailure>());
    let text = run.map_or_else(|| Chain(error).to_string(), |run| Chain(run).to_string());
    ToolError::ExecutionFailed(text).with_code(error.code())
}
