use std::sync::Arc;

use async_trait::async_trait;
use backstop_tool::{Arguments, DispatchSpec, Tool, ToolContext, ToolError};
use layer0::error::OrchError;
use layer0::operator::{Context, Task};
use layer0::{JsonText, Orchestrator, ToolSpec};
use serde_json::Value;

use crate::agent::as_tool::tool_answer;
use crate::dispatch::Dispatcher;
use crate::input_form::InputForm;

/// An operator of the run's orchestrator as a tool with the operator's name. It has one argument, the text `input`,
/// unless an [input schema](OperatorTool::input_schema) is set.
///
/// Its child runs behave as those of [`AgentTool`](crate::AgentTool). In addition, the orchestrator retries failed
/// runs: an agent with a log continues from its failure.
///
/// ```
/// use backstop_provider::ScriptedProvider;
/// use backstop_react::{Agent, OperatorTool};
/// use serde_json::json;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let model = ScriptedProvider::calling("research", json!({"input": "Find it."}), "Found.");
/// let lead = Agent::builder(model)
///     .name("lead")
///     .tool(OperatorTool::new("research", "Finds things."))
///     .build()?;
/// // In an orchestrator that has an operator named `research`, `lead` can call it.
/// # let _ = lead;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct OperatorTool {
    spec: ToolSpec,
    form: InputForm,
}

impl OperatorTool {
    /// Returns the tool of the operator with this name. The calling model reads the purpose of the operator in the
    /// description.
    pub fn new(operator: impl Into<Arc<str>>, description: impl Into<Arc<str>>) -> Self {
        Self { spec: InputForm::spec(operator, description, None), form: InputForm::Text }
    }

    /// Sets the operator's input schema, which its JSON input has to fit. If the input is an object, the tool's
    /// arguments are the input; otherwise the argument `input` is. Call this method first: it resets all other settings
    /// of the tool.
    ///
    /// ```
    /// use backstop_react::OperatorTool;
    /// use serde_json::json;
    ///
    /// let schema = json!({"type": "object", "properties": {"invoice": {"type": "string"}}});
    /// let tool = OperatorTool::new("pay", "Pays an invoice.").input_schema(&schema).idempotent();
    /// # let _ = tool;
    /// ```
    #[must_use]
    pub fn input_schema(mut self, schema: &Value) -> Self {
        let Self { spec, form } = &mut self;
        *form = InputForm::by(Some(schema));
        *spec =
            InputForm::spec(Arc::clone(&spec.name), Arc::clone(&spec.description), Some(schema));
        self
    }

    /// Marks the operator as safe to run again. If it keeps no record, it then starts from the beginning where its run
    /// was interrupted: after a crash, instead of the call being answered as interrupted, and after its child runs
    /// waited for people.
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.spec = self.spec.idempotent();
        self
    }

    /// Sets the time limit of one run of the operator, without the time it waits for people.
    #[must_use]
    pub fn timeout(mut self, timeout: std::time::Duration) -> Self {
        self.spec = self.spec.timeout(timeout);
        self
    }
}

#[async_trait]
impl Tool for OperatorTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn dispatch(&self, arguments: &Arguments) -> Option<DispatchSpec> {
        Some(DispatchSpec::new(Arc::clone(&self.spec.name), self.form.digest(arguments), true))
    }

    fn operator(&self) -> Option<&str> {
        Some(&self.spec.name)
    }

    fn checks_arguments(&self) -> bool {
        self.form.checks_arguments()
    }

    async fn call(
        &self,
        arguments: &Arguments,
        context: &ToolContext,
    ) -> Result<JsonText, ToolError> {
        let mut task = Task::json(self.form.input(arguments)?);
        task.idempotent = self.spec.idempotent;
        tool_answer(match Dispatcher::from_context(context) {
            Some(dispatcher) => dispatcher.dispatch(&self.spec.name, task, Context::root()).await,
            None => Err(OrchError::DispatchFailed("the call is outside of a run".to_owned())),
        })
    }
}
