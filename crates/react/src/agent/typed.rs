//! Answers as values of the caller's own types.

use backstop_tool::generate_schema;
use layer0::JsonText;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::agent::Agent;
use crate::error::{AgentError, RunFailure};
use crate::outcome::RunOutcome;
use crate::output_check::without_fence;
use crate::request::RunRequest;

/// The outcome of a run that did not fail, with its answer as a value.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TypedOutcome<T> {
    /// The answer; present exactly if the run completed.
    pub value: Option<T>,
    /// The outcome of the run.
    pub outcome: RunOutcome,
}

impl Agent {
    /// Runs the agent for an answer of this type. The model gets the type's JSON Schema; an answer that does not fit is
    /// sent back with the reason once.
    ///
    /// Some providers enforce the schema by a field of the request (OpenAI: `response_format`, `text.format`;
    /// Anthropic: `output_config.format`; Gemini: `responseJsonSchema`; Ollama: `format`; Claude on Bedrock:
    /// `outputConfig.textFormat`), as far as the field can express it; models of the others read it in their
    /// instructions. The answer is always checked against the whole schema here.
    ///
    /// ```
    /// use backstop_provider::ScriptedProvider;
    /// use backstop_react::Agent;
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
    /// As [`Agent::run`], and [`AgentError::OutputSerialization`] if the second answer does not fit either. The same
    /// error is returned for an answer that fits the schema but not the type, such as a number out of the type's range;
    /// the record has the run as completed then, because it knows only the schema.
    ///
    /// # Cancel safety
    ///
    /// As [`Agent::run`].
    pub async fn run_typed<T: DeserializeOwned + JsonSchema>(
        &self,
        request: impl Into<RunRequest>,
    ) -> Result<TypedOutcome<T>, RunFailure> {
        let outcome = self.run(request.into().output_schema(generate_schema::<T>())).await?;
        if outcome.stop.reason().is_some() {
            return Ok(TypedOutcome { value: None, outcome });
        }
        match JsonText::parse(without_fence(&outcome.output)).and_then(|answer| answer.read()) {
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
                // The tools that acted are no longer known.
                acted: outcome.usage.tool_calls > 0,
            }),
        }
    }
}
