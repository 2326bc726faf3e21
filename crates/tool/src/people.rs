//! Asking a person while a tool is running.

use async_trait::async_trait;
use layer0::JsonText;
use serde::{Deserialize, Serialize};

use crate::ToolError;

/// Whom a running tool asks; the runtime is one, in [`ToolContext::people`](crate::ToolContext::people).
#[async_trait]
pub trait People: Send + Sync {
    /// Asks for data that fits a JSON Schema, and waits for it.
    ///
    /// # Errors
    ///
    /// [`ToolError::ExecutionFailed`] for a schema that is none, and where the call has asked too often.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws what is asked.
    async fn ask(&self, message: &str, schema: JsonText) -> Result<Given, ToolError>;
}

/// What a person gave who was asked by a running tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Given {
    /// The data, which fits the schema.
    Data(JsonText),
    /// The person does not want to say it.
    Declined,
    /// There is no person to ask, or none said anything.
    NobodyThere,
}
