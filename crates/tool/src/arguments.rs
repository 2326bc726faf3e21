use std::collections::BTreeMap;
use std::fmt;
use std::ops::Index;
use std::sync::OnceLock;

use layer0::JsonText;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::ToolError;

/// The arguments of a call, as the text of the model and as a parsed tree.
///
/// A number in the tree is a 64-bit integer or float; the text has it as it was written.
///
/// ```
/// use layer0::JsonText;
/// use backstop_tool::Arguments;
///
/// let arguments = Arguments::new(JsonText::parse(r#"{"amount": 3.10, "to": "ada"}"#)?);
/// assert_eq!(arguments["to"], "ada");
/// assert_eq!(arguments.text().get(), r#"{"amount":3.10,"to":"ada"}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone)]
pub struct Arguments {
    text: JsonText,
    /// Parsed on first use; most tools decode the text into a type instead.
    value: OnceLock<Value>,
}

impl Arguments {
    /// Wraps a text, which is parsed into a tree at most once.
    #[must_use]
    pub const fn new(text: JsonText) -> Self {
        Self { text, value: OnceLock::new() }
    }

    /// Returns the arguments as they were written.
    #[must_use]
    pub const fn text(&self) -> &JsonText {
        &self.text
    }

    /// Returns the arguments as a tree.
    #[must_use]
    pub fn value(&self) -> &Value {
        self.value.get_or_init(|| self.text.value())
    }

    /// Decodes the arguments, or as many of them as `T` has. A number without a fraction, such as `5.0`, is decoded as
    /// that integer, as in JSON Schema.
    ///
    /// # Errors
    ///
    /// If they cannot be decoded into `T`.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        self.text.read()
    }

    /// Returns the text of a required argument.
    ///
    /// # Errors
    ///
    /// [`ToolError::InvalidInput`] if it is absent or not text.
    pub fn required_text(&self, name: &str) -> Result<&str, ToolError> {
        let given = &self[name];
        let why = if given.is_null() { "is required" } else { "must be a string" };
        given.as_str().ok_or_else(|| ToolError::InvalidInput(format!("{name} {why}")))
    }

    /// Returns the whole number of an optional argument, such as a count, a size or a position; `None` if it is absent.
    ///
    /// # Errors
    ///
    /// [`ToolError::InvalidInput`] if it is not a number, has a fraction or is out of range.
    pub fn whole_number(&self, name: &str) -> Result<Option<u64>, ToolError> {
        let given = &self[name];
        if given.is_null() {
            return Ok(None);
        }
        if let Some(number) = given.as_u64() {
            return Ok(Some(number));
        }
        let fields: ArgumentFields = self.read().unwrap_or_default();
        let number = fields.0.get(name).and_then(|text| text.read().ok());
        number.map(Some).ok_or_else(|| {
            let why = format!("{name} must be an integer from 0 to {}", u64::MAX);
            ToolError::InvalidInput(why)
        })
    }
}

/// Arguments by name.
#[derive(Default, Deserialize)]
struct ArgumentFields(BTreeMap<String, JsonText>);

impl From<Value> for Arguments {
    fn from(value: Value) -> Self {
        Self::new(value.into())
    }
}

/// An absent argument is `null`.
impl Index<&str> for Arguments {
    type Output = Value;

    fn index(&self, name: &str) -> &Value {
        &self.value()[name]
    }
}

impl PartialEq for Arguments {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl fmt::Debug for Arguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: P12, T2
    #[test]
    fn whole_numbers_are_read_in_every_form() {
        #[track_caller]
        fn check(written: &str, expected: Option<Option<u64>>) {
            let text = JsonText::parse(&format!(r#"{{"n":{written}}}"#)).unwrap();
            let read = Arguments::new(text).whole_number("n");
            assert_eq!(read.ok(), expected, "{written}");
        }
        check("5", Some(Some(5)));
        check("5.0", Some(Some(5)));
        check("5e0", Some(Some(5)));
        check("1.5e1", Some(Some(15)));
        check("-0.0", Some(Some(0)));
        check("9007199254740993.0", Some(Some(9_007_199_254_740_993)));
        check("18446744073709551615", Some(Some(u64::MAX)));
        check("18446744073709551615.0", Some(Some(u64::MAX)));
        check("null", Some(None));
        for refused in ["5.5", "-1", "-1.0", "18446744073709551616", "1e30", "\"5\"", "true"] {
            check(refused, None);
        }
        assert_eq!(Arguments::from(Value::Null).whole_number("n").ok(), Some(None));
    }
}
