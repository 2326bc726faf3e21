//! The form of an answer.

use backstop_provider::OutputSchema;
use backstop_provider_http::Subset;
use serde_json::Value;

/// What a schema may say: <https://docs.aws.amazon.com/bedrock/latest/userguide/structured-output.html>.
const SUBSET: Subset = Subset::of(&[
    "$defs",
    "$ref",
    "allOf",
    "anyOf",
    "const",
    "definitions",
    "description",
    "enum",
    "format",
    "items",
    "properties",
    "required",
    "title",
    "type",
])
.closed();

/// Claude's models from before there were forms. Others are told of the form by their instructions.
const OLDER: [&str; 7] = [
    "claude-2",
    "claude-3",
    "claude-instant",
    "claude-opus-4-0",
    "claude-opus-4-1",
    "claude-opus-4-2025",
    "claude-sonnet-4-",
];

/// Returns the schema as it is sent; `None` where model or protocol cannot hold an answer to it.
pub(crate) fn form_of(model: &str, output: &OutputSchema) -> Option<Value> {
    let is_newer = ["claude-sonnet-4-5", "claude-sonnet-4-6"];
    let is_older = OLDER.iter().any(|older| model.contains(older))
        && !is_newer.iter().any(|newer| model.contains(newer));
    if is_older || !model.contains("anthropic.claude") {
        None
    } else {
        SUBSET.fit(&output.schema.value())
    }
}
