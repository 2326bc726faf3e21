//! Structured output of Claude, on any host.

use backstop_provider::OutputSchema;
use layer0::JsonText;

use crate::schema::Subset;

/// The supported keywords:
/// <https://platform.claude.com/docs/en/build-with-claude/structured-outputs>, and the same at
/// <https://docs.aws.amazon.com/bedrock/latest/userguide/structured-output.html>.
const SUBSET: Subset = Subset::new(&[
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
.with_closed_objects();

/// Models without structured output.
const OLDER: [&str; 7] = [
    "claude-2",
    "claude-3",
    "claude-instant",
    "claude-opus-4-0",
    "claude-opus-4-1",
    "claude-opus-4-2025",
    "claude-sonnet-4-",
];

/// Returns the schema to send to this model of Claude; `None` if the model or the protocol cannot
/// enforce it.
#[must_use]
pub fn claude_form(model: &str, output: &OutputSchema) -> Option<JsonText> {
    let is_newer = ["claude-sonnet-4-5", "claude-sonnet-4-6"];
    let is_older = OLDER.iter().any(|older| model.contains(older))
        && !is_newer.iter().any(|newer| model.contains(newer));
    if is_older { None } else { SUBSET.fit(&output.schema.value()) }
}
