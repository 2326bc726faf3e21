//! Pages of long texts in the detail tools.

use backstop_tool::{Arguments, ToolError};
use serde_json::{Value, json};

/// Code of invalid arguments.
pub(crate) const INVALID_INPUT: &str = "INVALID_INPUT";

/// Default size of a page, in bytes.
pub const DEFAULT_PAGE_BYTES: usize = 8 * 1024;

/// Maximum size of a page, in bytes.
const MAX_PAGE_BYTES: usize = 64 * 1024;

/// Puts the page that `offset` and `limit` select into `answer[field]`, with the offset of the next page.
///
/// # Errors
///
/// [`ToolError::InvalidInput`] if one of them is not a whole number.
pub(crate) fn add_page(
    answer: &mut Value,
    field: &str,
    text: &str,
    arguments: &Arguments,
) -> Result<(), ToolError> {
    let number = |name: &str, default: usize| {
        let asked = arguments.whole_number(name).map_err(|error| error.with_code(INVALID_INPUT))?;
        let asked = asked.map(|asked| usize::try_from(asked).unwrap_or(usize::MAX));
        Ok::<_, ToolError>(asked.unwrap_or(default))
    };
    let start = text.floor_char_boundary(number("offset", 0)?);
    let limit = number("limit", DEFAULT_PAGE_BYTES)?.min(MAX_PAGE_BYTES);
    // At least one character, since a reader of single bytes would otherwise make no progress.
    let end = match text.floor_char_boundary(start.saturating_add(limit)) {
        end if end > start => end,
        _ => text.ceil_char_boundary(start.saturating_add(1)),
    };
    answer[field] = json!(&text[start..end]);
    if end < text.len() {
        answer["next_offset"] = json!(end);
        answer["total_bytes"] = json!(text.len());
    }
    Ok(())
}

/// Returns the schema of a detail tool's arguments.
pub(crate) fn page_schema(id: &str, about: &str) -> Value {
    json!({
        "type": "object",
        "properties": {
            id: {"type": "string", "description": about},
            "offset": {"type": "integer", "minimum": 0, "description": "Where to begin, in bytes."},
            "limit": {"type": "integer", "minimum": 1, "description": "How much to read, in bytes."},
        },
        "required": [id],
        "additionalProperties": false,
    })
}
