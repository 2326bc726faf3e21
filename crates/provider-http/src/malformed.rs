use std::sync::Arc;

use backstop_provider::{ModelResponse, ProviderError};
use layer0::message::StopReason;
use serde_json::Value;
use thiserror::Error;

/// A failure that is returned as an answer: the endpoint could not parse the model's output. It is
/// an error until the response is returned.
#[derive(Debug, Error)]
#[error("the model's answer is malformed")]
pub(crate) struct MalformedAnswer {
    /// The model's output, if the endpoint repeats it.
    text: String,
}

impl MalformedAnswer {
    /// Reads the body of the failure.
    pub(crate) fn read(body: &Value) -> Self {
        let text = body.pointer("/error/failed_generation").and_then(Value::as_str);
        Self { text: text.unwrap_or_default().to_owned() }
    }

    pub(crate) fn into_error(self) -> ProviderError {
        ProviderError::Other(self.into())
    }

    /// Returns the response for such an error; any other error is unchanged.
    ///
    /// # Errors
    ///
    /// Any other error.
    pub(crate) fn answer(error: ProviderError) -> Result<ModelResponse, ProviderError> {
        let ProviderError::Other(error) = error else { return Err(error) };
        let Self { text } = *error.downcast::<Self>().map_err(ProviderError::Other)?;
        Ok(ModelResponse::new(text, Arc::default(), StopReason::Malformed, None))
    }
}
