//! Which forms of answers Claude can be held to, on any host.

use backstop_provider::OutputSchema;
use layer0::JsonText;

use crate::schema::Subset;

/// What a schema may say: <https://platform.claude.com/docs/en/build-with-claude/structured-outputs>, and
/// the same at <https://docs.aws.amazon.com/bedrock/latest/userguide/structured-output.html>.
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

/// Models from before there were forms.
const OLDER: [&str; 7] = [
    "claude-2",
    "claude-3",
    "claude-instant",
    "claude-opus-4-0",
    "claude-opus-4-1",
    "claude-opus-4-2025",
    "claude-sonnet-4-",
];

/// Returns the schema as it is sent to this model of Claude; `None` where model or protocol cannot hold an
/// answer to it.
#[must_use]
pub fn claude_form(model: &str, output: &OutputSchema) -> Option<JsonText> {
    let is_newer = ["claude-sonnet-4-5", "claude-sonnet-4-6"];
    let is_older = OLDER.iter().any(|older| model.contains(older))
        && !is_newer.iter().any(|newer| model.contains(newer));
    if is_older { None } else { SUBSET.fit(&output.schema.value()) }
}
