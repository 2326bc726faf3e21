//! Tools as servers of others declare them.

use async_trait::async_trait;
use backstop::tool::{Arguments, Tool, ToolContext};
use backstop::{CancellationToken, ToolError};
use layer0::{JsonText, ToolSpec};
use serde_json::{Value, json};

/// A tool that says `done`, with any name and schema.
pub(super) struct Listed(pub(super) ToolSpec);

#[async_trait]
impl Tool for Listed {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: &Arguments, _: &ToolContext) -> Result<JsonText, ToolError> {
        Ok(JsonText::string("done"))
    }
}

/// A tool during which the run is stopped.
pub(super) struct Halts(pub(super) ToolSpec, pub(super) CancellationToken);

#[async_trait]
impl Tool for Halts {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: &Arguments, _: &ToolContext) -> Result<JsonText, ToolError> {
        self.1.cancel();
        std::future::pending().await
    }
}

/// Alternatives at the top.
pub(super) fn with_alternatives() -> Value {
    let text = json!({ "type": "string" });
    json!({
        "type": "object",
        "properties": { "id": text, "url": text },
        "anyOf": [{ "required": ["id"] }, { "required": ["url"] }],
    })
}

/// Keys that are no words.
pub(super) fn with_odd_keys() -> Value {
    let text = json!({ "type": "string" });
    let long = "k".repeat(70);
    json!({ "type": "object", "properties": { "$filter": text, "due date": text, long: text } })
}

/// Words of draft 4.
pub(super) fn in_draft_4() -> Value {
    json!({
        "$schema": "http://json-schema.org/draft-04/schema#",
        "id": "https://example.com/amount",
        "type": "object",
        "properties": { "amount": { "type": "number", "minimum": 0, "exclusiveMinimum": true } },
    })
}

/// Words that subsets of JSON Schema lack.
pub(super) fn beyond_subsets() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "kind": { "const": "file" },
            "level": { "type": "integer", "enum": [1, 2, 3] },
            "note": { "type": ["string", "null"] },
            "pair": { "type": "array" },
            "anything": true,
            "tree": { "$ref": "#/$defs/tree" },
        },
        "$defs": { "tree": { "type": "object", "properties": {} } },
        "additionalProperties": false,
        "required": ["kind"],
    })
}
