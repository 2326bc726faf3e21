//! Requests to a person from a running tool.

use async_trait::async_trait;
use layer0::JsonText;
use serde::{Deserialize, Serialize};

use crate::ToolError;

/// Interface through which a running tool asks a person; the runtime provides one in
/// [`ToolContext::people`](crate::ToolContext::people).
#[async_trait]
pub trait People: Send + Sync {
    /// Asks for data that fits a JSON Schema, and waits for it.
    ///
    /// # Errors
    ///
    /// [`ToolError::ExecutionFailed`] if the schema is not valid, or the call has asked too often.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws the request.
    async fn ask(&self, message: &str, schema: JsonText) -> Result<Given, ToolError>;
}

/// The answer of a person to a running tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Given {
    /// The data, which fits the schema.
    Data(JsonText),
    /// The person declines to answer.
    Declined,
    /// There is no person to ask, or none answered.
    NobodyThere,
}
