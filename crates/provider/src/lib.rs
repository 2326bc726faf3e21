//! What a model provider is, and how one fails.
//!
//! A [`Provider`] turns a [`ModelRequest`] into a [`ModelResponse`] or a [`ProviderError`]. It makes
//! one attempt: waiting, retrying and falling back are layers around it, and no adapter may retry
//! by itself. A response is whole or it is an error; a stream that ended early is never an answer.
//!
//! [`ScriptedProvider`] answers from data, for tests, rehearsals and first runs without a key.

mod error;
pub mod recorded;
mod request;
mod script;
mod scripted;
mod timeout;

use async_trait::async_trait;

pub use error::ProviderError;
pub use recorded::RecordedProvider;
pub use request::{ModelRequest, ModelResponse, ModelSettings, StreamSink};
pub use script::{ErrorKind, ScriptedAnswer, ScriptedError, ScriptedToolCall};
pub use scripted::{Placeholders, ScriptExhausted, ScriptedProvider};
pub use timeout::TimeoutPhase;

/// Asks a model once.
#[async_trait]
pub trait Provider: Send + Sync {
    /// Returns the provider's name as it stands in events, such as `anthropic`.
    fn name(&self) -> &str;

    /// Returns the model's name as the provider knows it.
    fn model(&self) -> &str;

    /// Asks, and waits for the whole answer.
    ///
    /// # Errors
    ///
    /// Any variant of [`ProviderError`] but [`ProviderError::Exhausted`] and
    /// [`ProviderError::CircuitOpen`], which belong to the layers around.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection; the provider may bill what it produced.
    async fn complete(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError>;

    /// Asks, and passes the answer on while it comes, through the request's sink. The future ends
    /// when the stream has ended and been classified.
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
