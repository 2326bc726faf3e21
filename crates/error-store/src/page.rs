//! One page of a long text, as the detail tools give it out.

use backstop_tool::{Arguments, ToolError};
use serde_json::{Value, json};

/// The code of arguments that do not fit.
pub(crate) const INVALID_INPUT: &str = "INVALID_INPUT";

/// The bytes in one answer unless the model asks for another size.
pub const DEFAULT_PAGE_BYTES: usize = 8 * 1024;

/// The largest page the model can ask for.
const MAX_PAGE_BYTES: usize = 64 * 1024;

/// Puts the page that `offset` and `limit` select into `answer[field]`, with the offset of the next page.
///
/// # Errors
///
/// [`ToolError::InvalidInput`] when one of them is no whole number.
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
    // At least one character, or a reader that asks for single bytes never gets on.
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
