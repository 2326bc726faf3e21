use async_trait::async_trait;
use backstop_state::MemoryEntries;
use backstop_tool::{Arguments, Tool, ToolContext, ToolError};
use layer0::{JsonText, ToolSpec};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::{capability, store_error};

/// `memory_save`: saves a note that is shown to later runs. A call needs `memory:write:<kind of scope>`. The same text
/// is saved only once.
#[derive(Debug, Clone)]
pub struct MemorySave {
    spec: ToolSpec,
    entries: MemoryEntries,
}

impl MemorySave {
    /// Creates the tool.
    #[must_use]
    pub fn new(entries: MemoryEntries) -> Self {
        let schema = json!({
            "type": "object",
            "properties": {"text": {"type": "string", "minLength": 1, "description": "What to remember, in one or two sentences."}},
            "required": ["text"],
            "additionalProperties": false,
        });
        let description = "Remember something for later conversations. Returns the id of the note.";
        let spec = ToolSpec::new("memory_save", description, schema).idempotent();
        Self { spec, entries }
    }
}

#[async_trait]
impl Tool for MemorySave {
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
        let text = arguments.required_text("text")?;
        let digest = Sha256::digest(text.as_bytes());
        let id: String = digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        let id = format!("note_{id}");
        self.entries
            .note(&context.session, &id, text)
            .await
            .map_err(|error| store_error(&error))?;
        Ok(JsonText::from(json!({ "id": id })))
    }
}
