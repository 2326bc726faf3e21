//! The interface of model providers, and their failures.
//!
//! A [`Provider`] turns a [`ModelRequest`] into a [`ModelResponse`] or a [`ProviderError`]. It makes
//! one attempt: waiting, retrying and falling back are layers around it, and no adapter may retry
//! by itself. A response is whole or it is an error; a stream that ended early is never an answer.
//!
//! [`ScriptedProvider`] answers from data, for tests, rehearsals and first runs without a key.

mod error;
mod output;
pub mod recorded;
mod request;
mod script;
mod scripted;
mod settings;
mod timeout;

use async_trait::async_trait;

pub use error::{ProviderError, facts_by_code};
pub use output::{OutputSchema, OutputSupport};
pub use recorded::RecordedProvider;
pub use request::{ModelRequest, ModelResponse, StreamSink};
pub use script::{ErrorKind, ScriptedAnswer, ScriptedError, ScriptedToolCall};
pub use scripted::{Placeholders, ScriptExhausted, ScriptedProvider, ScriptedRequests};
pub use settings::{
    ModelSettings, ReasoningEffort, SettingsSupport, ToolChoice, UnsupportedSetting,
};
pub use timeout::TimeoutPhase;

/// A model provider, which makes one attempt for each call.
#[async_trait]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no model provider",
    label = "this is no model provider",
    note = "the builder of a provider, such as `Anthropic::from_env(…)?`, becomes one by `.build()?`"
)]
pub trait Provider: Send + Sync {
    /// Returns the provider's name in events, such as `anthropic`.
    fn name(&self) -> &str;

    /// Returns the model's name as the provider knows it.
    fn model(&self) -> &str;

    /// Checks that the provider supports these settings.
    ///
    /// An agent calls this when it is built, so that no run fails at its first call;
    /// [`SettingsSupport`] implements the check. By default a provider only supports a maximum of
    /// output tokens and a temperature.
    ///
    /// # Errors
    ///
    /// [`UnsupportedSetting`] for the first unsupported setting.
    fn check_settings(&self, settings: &ModelSettings) -> Result<(), UnsupportedSetting> {
        SettingsSupport::basic().check(self.name(), settings)
    }

    /// Returns the provider's support for the output schema of a request.
    ///
    /// An agent calls this before each attempt, and sends the schema and instructions about it as needed.
    fn output_support(&self, request: &ModelRequest) -> OutputSupport {
        let _ = request;
        OutputSupport::Prompt
    }

    /// Returns whether a zero in the reported usage is a fact.
    ///
    /// If a provider may leave out the tokens of the prompt or the answer, as by default, an agent
    /// estimates them from the texts.
    fn reports_all_usage(&self) -> bool {
        false
    }

    /// Sends the request and waits for the whole response.
    ///
    /// # Errors
    ///
    /// Any variant of [`ProviderError`] except [`ProviderError::Exhausted`] and
    /// [`ProviderError::CircuitOpen`], which belong to the layers around.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection; the provider may bill the text it produced.
    async fn complete(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError>;

    /// Sends the request and streams the response to the request's sink. The future ends when the
    /// stream has ended and been classified.
    ///
    /// # Errors
    ///
    /// As [`Provider::complete`], and [`ProviderError::StreamTruncated`],
    /// [`ProviderError::StreamInterrupted`].
    ///
    /// # Cancel safety
    ///
    /// As [`Provider::complete`].
    async fn stream(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        self.complete(request).await
    }
}
