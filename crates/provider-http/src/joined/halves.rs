//! Half characters at the ends of texts in JSON, and the texts that they belong to.

use layer0::text::replace_lone_surrogates;
use serde_json::Value;

/// Length of an escape such as `\ud83d`, in bytes.
pub(super) const ESCAPE_BYTES: usize = 6;

/// Members that number the texts of an answer.
const NUMBERS: [&str; 6] =
    ["index", "output_index", "content_index", "summary_index", "item_id", "contentBlockIndex"];

/// The types of events after which no piece of a text follows.
const LAST_TYPES: [&str; 7] = [
    "error",
    "message_delta",
    "message_stop",
    "response.cancelled",
    "response.completed",
    "response.failed",
    "response.incomplete",
];

/// Maximum number of halves that are looked at in a frame. Each takes the time of reading the frame.
const MAX_HALVES: usize = 64;

/// An escape of half a character.
pub(super) struct Half {
    /// Its position.
    pub(super) at: usize,
    /// The text that begins or ends with it.
    pub(super) text: Text,
}

/// A text of an answer, whose pieces come in several frames.
#[derive(Debug, PartialEq)]
pub(super) struct Text {
    /// JSON pointer to a piece.
    pointer: String,
    /// The numbers of the objects around a piece.
    numbers: Vec<Value>,
}

impl Text {
    fn new(json: &str, position: usize) -> Option<Self> {
        let pointer = pointer_to(json, position)?;
        let numbers = numbers_along(&read(json)?, &pointer)?;
        Some(Self { pointer, numbers })
    }

    /// Returns whether a frame has a piece of this text that is not empty.
    pub(super) fn has_piece_in(&self, json: &str) -> bool {
        let Some(frame) = read(json) else { return false };
        let piece = frame.pointer(&self.pointer).and_then(Value::as_str);
        piece.is_some_and(|piece| !piece.is_empty())
            && numbers_along(&frame, &self.pointer).as_ref() == Some(&self.numbers)
    }
}

/// Returns the first halves of characters that end a string.
pub(super) fn first_halves(json: &str) -> Vec<Half> {
    let ends_a_string = |at: &usize| {
        let backslashes =
            json.as_bytes()[..*at].iter().rev().take_while(|byte| **byte == b'\\').count();
        backslashes % 2 == 0 && json.as_bytes().get(at + ESCAPE_BYTES) == Some(&b'"')
    };
    halves(json, "89abAB", ends_a_string)
}

/// Returns the second halves of characters that begin a string.
pub(super) fn second_halves(json: &str) -> Vec<Half> {
    let begins_a_string = |at: &usize| {
        let before = &json.as_bytes()[..*at];
        before.ends_with(b"\"") && !before.ends_with(b"\\\"")
    };
    halves(json, "cdefCDEF", begins_a_string)
}

/// Returns the escapes `\ud…` whose second digit is one of these, at a place that fits.
fn halves(json: &str, second_digits: &str, fits: impl Fn(&usize) -> bool) -> Vec<Half> {
    let is_half = |at: &usize| {
        let digits = json.as_bytes().get(at + 2..at + ESCAPE_BYTES).unwrap_or_default();
        matches!(digits, [b'd' | b'D', second, third, fourth]
            if second_digits.as_bytes().contains(second)
                && third.is_ascii_hexdigit()
                && fourth.is_ascii_hexdigit())
    };
    let escapes = json.match_indices("\\u").map(|(at, _)| at);
    let found = escapes.filter(|at| is_half(at) && fits(at)).take(MAX_HALVES);
    found.filter_map(|at| Some(Half { at, text: Text::new(json, at)? })).collect()
}

/// Returns whether no piece of a text follows a frame: it states the reason of the end, or is no object, as `[DONE]`.
pub(super) fn ends_an_answer(json: &str) -> bool {
    let Some(Value::Object(frame)) = read(json) else { return true };
    let has_reason = |list: &str, name: &str| {
        let items = frame.get(list).and_then(Value::as_array).into_iter().flatten();
        items.filter_map(|item| item[name].as_str()).any(|reason| !reason.is_empty())
    };
    let kind = frame.get("type").and_then(Value::as_str).unwrap_or_default();
    LAST_TYPES.contains(&kind)
        || frame.get("done").is_some_and(|done| *done == true)
        || frame.get("stopReason").is_some_and(Value::is_string)
        || has_reason("choices", "finish_reason")
        || has_reason("candidates", "finishReason")
}

fn read(json: &str) -> Option<Value> {
    serde_json::from_str(&replace_lone_surrogates(json)).ok()
}

/// Returns the numbers of the objects that a pointer leads through.
fn numbers_along(json: &Value, pointer: &str) -> Option<Vec<Value>> {
    let mut numbers = Vec::new();
    let ends = pointer.match_indices('/').map(|(at, _)| at);
    for end in ends {
        let object = json.pointer(&pointer[..end])?;
        numbers.extend(NUMBERS.iter().map(|name| object.get(name).cloned().unwrap_or_default()));
    }
    Some(numbers)
}

/// An object or a list around a position.
enum Level {
    Object { key: String },
    List { index: usize },
}

/// Returns a JSON pointer to the string at a position.
fn pointer_to(json: &str, position: usize) -> Option<String> {
    let bytes = json.as_bytes();
    let mut levels: Vec<Level> = Vec::new();
    let mut at = 0;
    while at < position {
        match bytes.get(at)? {
            b'{' => levels.push(Level::Object { key: String::new() }),
            b'[' => levels.push(Level::List { index: 0 }),
            b'}' | b']' => drop(levels.pop()?),
            b',' => {
                if let Some(Level::List { index }) = levels.last_mut() {
                    *index += 1;
                }
            }
            b'"' => {
                let end = string_end(bytes, at)?;
                if end > position {
                    break;
                }
                let is_key = json.get(end..)?.trim_start().starts_with(':');
                if let Some(Level::Object { key }) = levels.last_mut().filter(|_| is_key) {
                    *key =
                        serde_json::from_str(&replace_lone_surrogates(json.get(at..end)?)).ok()?;
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    let steps = levels.iter().map(|level| match level {
        Level::Object { key } => format!("/{}", key.replace('~', "~0").replace('/', "~1")),
        Level::List { index } => format!("/{index}"),
    });
    Some(steps.collect())
}

/// Returns the position behind the string that begins at `start`.
fn string_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: P7. A frame of any number of halves takes bounded time.
    #[test]
    fn number_of_halves_is_bounded() {
        let halves = vec![r#""\ud83d""#; 1_000].join(",");
        assert_eq!(first_halves(&format!("[{halves}]")).len(), MAX_HALVES);
        let halves = halves.replace("d83d", "dc4d");
        assert_eq!(second_halves(&format!("[{halves}]")).len(), MAX_HALVES);
    }
}
