use async_trait::async_trait;
use backstop_state::MemoryEntries;
use backstop_tool::{Arguments, Tool, ToolContext, ToolError};
use layer0::{JsonText, ToolSpec};
use serde_json::json;

use super::{capability, store_error};

/// `memory_forget`: removes a note, or the result of an earlier run. A call needs `memory:write:<kind of scope>`.
#[derive(Debug, Clone)]
pub struct MemoryForget {
    spec: ToolSpec,
    entries: MemoryEntries,
}

impl MemoryForget {
    /// Creates the tool.
    #[must_use]
    pub fn new(entries: MemoryEntries) -> Self {
        let schema = json!({
            "type": "object",
            "properties": {"id": {"type": "string", "description": "The id, as memory_search returns it."}},
            "required": ["id"],
            "additionalProperties": false,
        });
        let description = "Forget a note, or what was said in an earlier conversation. Returns whether there was one.";
        let spec = ToolSpec::new("memory_forget", description, schema).idempotent();
        Self { spec, entries }
    }
}

#[async_trait]
impl Tool for MemoryForget {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn needs(&self, _: &Arguments) -> Result<Vec<String>, ToolError> {
        Ok(vec![capability("write", &self.entries)])
    }

    async fn call(
        &self,
        arguments: &Arguments,
        context: &ToolContext,
    ) -> Result<JsonText, ToolError> {
        let id = arguments.required_text("id")?;
        let removed = self.entries.remove(&context.session, id).await;
        let removed = removed.map_err(|error| store_error(&error))?;
        // A missing entry is a success, so that the call can be repeated.
        Ok(JsonText::from(json!({ "forgotten": removed })))
    }
}
