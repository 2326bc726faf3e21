use async_trait::async_trait;
use backstop_state::MemoryEntries;
use backstop_tool::{Arguments, Tool, ToolContext, ToolError};
use layer0::{JsonText, ToolSpec};
use serde_json::{Value, json};

use super::{capability, store_error};

/// Default number of returned entries.
const DEFAULT: u64 = 8;
/// Maximum number of entries that the model can ask for.
const MOST: u64 = 50;

/// `memory_search`: finds notes and results of earlier runs. A call needs `memory:read:<kind of scope>`.
#[derive(Debug, Clone)]
pub struct MemorySearch {
    spec: ToolSpec,
    entries: MemoryEntries,
}

impl MemorySearch {
    /// Creates the tool.
    #[must_use]
    pub fn new(entries: MemoryEntries) -> Self {
        let schema = json!({
            "type": "object",
            "properties": {
                "text": {"type": "string", "description": "Words to look for."},
                "max": {"type": "integer", "minimum": 1, "maximum": MOST, "description": "How many to return, at most; 8 otherwise."},
            },
            "required": ["text"],
            "additionalProperties": false,
        });
        let description = "Look for notes and for what was said in earlier conversations. Returns id and text of \
             those that fit best.";
        let spec = ToolSpec::new("memory_search", description, schema).idempotent().exploratory();
        Self { spec, entries }
    }
}

#[async_trait]
impl Tool for MemorySearch {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn needs(&self, _: &Arguments) -> Result<Vec<String>, ToolError> {
        Ok(vec![capability("read", &self.entries)])
    }

    async fn call(
        &self,
        arguments: &Arguments,
        context: &ToolContext,
    ) -> Result<JsonText, ToolError> {
        let text = arguments.required_text("text")?;
        let most = arguments.whole_number("max")?.unwrap_or(DEFAULT).clamp(1, MOST);
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        let found = self.entries.search(&context.session, text, most).await;
        let found = found.map_err(|error| store_error(&error))?;
        let found = found.into_iter().map(|entry| json!({ "id": entry.id, "text": entry.text }));
        Ok(JsonText::from(json!({ "found": found.collect::<Vec<Value>>() })))
    }
}
