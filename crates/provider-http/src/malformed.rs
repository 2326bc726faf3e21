use std::sync::Arc;

use backstop_provider::{ModelResponse, ProviderError};
use layer0::message::StopReason;
use serde_json::Value;
use thiserror::Error;

/// A refusal that is none: the model answered, and the endpoint could not read what it wrote. It travels as
/// an error to where the answer is returned.
#[derive(Debug, Error)]
#[error("the model's answer is malformed")]
pub(crate) struct MalformedAnswer {
    /// The text that the model wrote, where the endpoint repeats it.
    text: String,
}

impl MalformedAnswer {
    /// Reads the body of the refusal.
    pub(crate) fn read(body: &Value) -> Self {
        let text = body.pointer("/error/failed_generation").and_then(Value::as_str);
        Self { text: text.unwrap_or_default().to_owned() }
    }

    pub(crate) fn into_error(self) -> ProviderError {
        ProviderError::Other(self.into())
    }

    /// Returns the answer that an error stands for; any other error stays what it is.
    ///
    /// # Errors
    ///
    /// The error itself.
    pub(crate) fn answer(error: ProviderError) -> Result<ModelResponse, ProviderError> {
        let ProviderError::Other(error) = error else { return Err(error) };
        let Self { text } = *error.downcast::<Self>().map_err(ProviderError::Other)?;
        Ok(ModelResponse::new(text, Arc::default(), StopReason::Malformed, None))
    }
}
