//! Texts that several parts share: the model's text for a call without a result, and the text for a failure in its
//! record and in its live error.

mod surrogates;

use std::any::Any;
use std::borrow::Cow;
use std::fmt::Display;

use serde_json::Value;

use crate::json_text::JsonText;

pub use surrogates::{replace_lone_surrogates, replace_lone_surrogates_in};

/// The call did not complete before the run ended.
pub const CANCELLED: &str = "Cancelled: the run was stopped";

/// The run ended during a call of a tool that is not safe to repeat.
pub const MAY_HAVE_ACTED: &str = "Cancelled: may already have acted";

/// The process died during a call of a tool that is not safe to repeat.
pub const INTERRUPTED: &str = "Interrupted: may already have acted";

/// The process died during a call that is known not to have happened.
pub const DID_NOT_HAPPEN: &str = "Interrupted: did not happen; may be called again";

/// Addition to the failure of a call that is known not to have happened.
pub const MAY_BE_CALLED_AGAIN: &str = "It did not happen; may be called again.";

/// The output of a call that is known to have happened, if its answer is not known.
pub const HAPPENED: &str = "It happened; what it answered is not known.";

/// Maximum length of a person's message that is used, in characters.
const MAX_CHARS: usize = 500;

/// The reason of a denial without one.
pub const NO_REASON: &str = "no reason was given";

/// The reason of a denial after the approval expired.
pub const EXPIRED: &str = "the approval expired without a decision";

/// Returns the text for a call that a person denied, with the reason if there is one. Without a name, the call was
/// denied because nobody decided.
#[must_use]
pub fn denial(by: &str, reason: &str) -> String {
    let cut = |text: &str| text.chars().take(MAX_CHARS).collect::<String>();
    match (by, reason) {
        ("", reason) => format!("Denied: {}", cut(reason)),
        (by, "") => format!("Denied by {}", cut(by)),
        (by, reason) => format!("Denied by {}: {}", cut(by), cut(reason)),
    }
}

/// Returns the text of a failure as records have it: its first 500 characters, and that they are not all where there are
/// more.
#[must_use]
pub fn cut_message(text: &str) -> Cow<'_, str> {
    let Some((end, _)) = text.char_indices().nth(MAX_CHARS) else { return Cow::Borrowed(text) };
    let (head, all) = (text.get(..end).unwrap_or_default(), text.chars().count());
    Cow::Owned(format!("{head} [Cut: {MAX_CHARS} of {all} characters shown]"))
}

/// Returns the text for a failure after this number of attempts.
#[must_use]
pub fn gave_up(attempts: u32) -> String {
    format!("gave up after {attempts} attempts")
}

/// Returns the text for an unusable answer of a model.
#[must_use]
pub fn invalid_response(why: impl Display) -> String {
    format!("invalid response: {why}")
}

/// Returns the text for a conversation that is too long for its model.
#[must_use]
pub fn context_overflow(why: impl Display) -> String {
    format!("context overflow: {why}")
}

/// Returns the text of a value for a model and for its digest: JSON with sorted keys; a string without quotes.
///
/// ```
/// use layer0::text::plain;
/// use serde_json::json;
///
/// assert_eq!(plain(&json!("hello")), "hello");
/// assert_eq!(plain(&json!({ "b": 1, "a": "x" })), r#"{"a":"x","b":1}"#);
/// ```
#[must_use]
pub fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => JsonText::from(other).get().to_owned(),
    }
}

/// Returns the message of a panic. Its payload is never dropped, because dropping it may panic too.
///
/// ```
/// use layer0::text::panic_message;
///
/// let panic = std::panic::catch_unwind(|| panic!("wild thing")).unwrap_err();
/// assert_eq!(panic_message(panic), "wild thing");
/// ```
#[must_use]
pub fn panic_message(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    std::mem::forget(panic);
    text.unwrap_or_else(|| "a value that is no text".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_and_says_so() {
        assert_eq!(cut_message(&"é".repeat(500)), "é".repeat(500));
        let cut = format!("{} [Cut: 500 of 501 characters shown]", "é".repeat(500));
        assert_eq!(cut_message(&"é".repeat(501)), cut);
    }
}
