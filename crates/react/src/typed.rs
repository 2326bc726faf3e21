//! Answers as values of the caller's own types.

use react_machine::OutputCheck;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tool::{Schema, SchemaError, schema_of};

use crate::agent::{Agent, RunRequest};
use crate::error::{AgentError, RunFailure};
use crate::outcome::RunOutcome;

/// A run that did not fail, and the value it came to.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TypedOutcome<T> {
    /// The answer; there is one exactly when the run completed.
    pub value: Option<T>,
    /// The run.
    pub outcome: RunOutcome,
}

impl Agent {
    /// Runs the agent for an answer of this type. The model is told the type's JSON Schema; an
    /// answer that does not fit is sent back with the reason once.
    ///
    /// ```
    /// use provider::ScriptedProvider;
    /// use react::Agent;
    /// use schemars::JsonSchema;
    /// use serde::Deserialize;
    ///
    /// #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    /// struct Sum {
    ///     value: i64,
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = ScriptedProvider::saying(["about 42", r#"{"value": 42}"#]);
    /// let agent = Agent::builder(model).build()?;
    /// let answer = agent.run_typed::<Sum>("What is 40 + 2?").await?;
    /// assert_eq!(answer.value, Some(Sum { value: 42 }));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Agent::run`], and [`AgentError::OutputSerialization`] when the second answer does not
    /// fit either. So it is when an answer fits the schema but not the type, such as `1.0` for an
    /// integer; the record says completed then, because it knows only the schema.
    ///
    /// # Cancel safety
    ///
    /// As [`Agent::run`].
    pub async fn run_typed<T: DeserializeOwned + JsonSchema>(
        &self,
        request: impl Into<RunRequest>,
    ) -> Result<TypedOutcome<T>, RunFailure> {
        let outcome = self.run(request.into().output_schema(schema_of::<T>())).await?;
        if outcome.stop.reason().is_some() {
            return Ok(TypedOutcome { value: None, outcome });
        }
        match serde_json::from_str(without_fence(&outcome.output)) {
            Ok(value) => Ok(TypedOutcome { value: Some(value), outcome }),
            Err(error) => Err(RunFailure {
                run_id: outcome.run_id,
                session: outcome.session,
                error: AgentError::OutputSerialization(format!(
                    "it fits the schema, but not the type: {error}"
                )),
                usage: outcome.usage,
                partial: outcome.output,
                transcript: outcome.transcript,
                // Which of its tools acted is no longer known.
                acted: outcome.usage.tool_calls > 0,
            }),
        }
    }
}

/// Returns the check of final answers against a schema.
pub(crate) fn output_check(schema: &Value) -> Result<OutputCheck, SchemaError> {
    let schema = Schema::new(schema)?;
    Ok(OutputCheck::new(move |text| {
        let value = serde_json::from_str(without_fence(text))
            .map_err(|error| format!("it is no JSON: {error}"))?;
        schema.check(&value).map_err(|misfit| misfit.to_string())
    }))
}

/// Takes off the Markdown fence that models like to put around JSON.
fn without_fence(text: &str) -> &str {
    let text = text.trim();
    let inner = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    let Some(inner) = inner else { return text };
    inner.strip_prefix("json").unwrap_or(inner).trim()
}
