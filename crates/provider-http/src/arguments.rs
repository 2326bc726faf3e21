use std::borrow::Cow;

use layer0::JsonText;
use serde::Serialize;

use crate::decode::repair_json;

/// Reads the arguments of a tool call as the model wrote them; numbers keep their text.
///
/// Empty text and `null` mean no arguments. Text that is not JSON, or in which an object has a key
/// twice, becomes a JSON string, so that the call is refused as invalid input and the model sees the
/// text it wrote.
///
/// ```
/// use backstop_provider_http::parse_arguments;
///
/// assert_eq!(parse_arguments(r#"{"amount": 3.10}"#).get(), r#"{"amount":3.10}"#);
/// assert_eq!(parse_arguments("").get(), "{}");
/// assert_eq!(parse_arguments(r#"{"path": "#).as_string().as_deref(), Some(r#"{"path": "#));
/// assert!(parse_arguments(r#"{"to": "ada", "to": "bob"}"#).as_string().is_some());
/// ```
#[must_use]
pub fn parse_arguments(text: &str) -> JsonText {
    let written = match text.trim() {
        "" | "null" => "{}",
        written => written,
    };
    parse(written).unwrap_or_else(|| JsonText::string(text))
}

/// Reads JSON; `None` if the text is not JSON, or an object in it has a key twice.
pub(crate) fn parse(text: &str) -> Option<JsonText> {
    JsonText::parse_arguments(text).ok().or_else(|| {
        let mended = repair_json(text.as_bytes())?;
        JsonText::parse_arguments(str::from_utf8(&mended).ok()?).ok()
    })
}

/// Returns the arguments of an earlier call in a form that every endpoint accepts when the
/// conversation is sent back: an object.
///
/// Any other value is wrapped as `{"invalid_arguments": …}`; several endpoints refuse the whole
/// conversation otherwise.
#[must_use]
pub fn sendable_arguments(arguments: &JsonText) -> Cow<'_, JsonText> {
    #[derive(Serialize)]
    struct Invalid<'a> {
        invalid_arguments: &'a JsonText,
    }
    if arguments.is_object() {
        return Cow::Borrowed(arguments);
    }
    let wrapped = JsonText::from_value(&Invalid { invalid_arguments: arguments });
    Cow::Owned(wrapped.unwrap_or_default())
}
