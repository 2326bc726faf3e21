use std::collections::BTreeMap;
use std::fmt;
use std::ops::Index;
use std::sync::OnceLock;

use layer0::JsonText;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::ToolError;

/// The arguments of a call: as the model wrote them, and as a tree to look things up in.
///
/// A number in the tree is what a 64-bit integer or float makes of it; the text has it as it was
/// written.
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
    /// Made for the first who looks into it; most tools read the text into a type.
    value: OnceLock<Value>,
}

impl Arguments {
    /// Takes a text, which is read into a tree once, for all who look into it.
    #[must_use]
    pub const fn new(text: JsonText) -> Self {
        Self { text, value: OnceLock::new() }
    }

    /// Returns them as they were written.
    #[must_use]
    pub const fn text(&self) -> &JsonText {
        &self.text
    }

    /// Returns them as a tree.
    #[must_use]
    pub fn value(&self) -> &Value {
        self.value.get_or_init(|| self.text.value())
    }

    /// Reads them, or as much of them as `T` asks for. A number without a fraction, such as `5.0`, is
    /// that integer, as JSON Schema has it.
    ///
    /// # Errors
    ///
    /// When they are no `T`.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        self.text.read()
    }

    /// Returns a text that an argument has to be.
    ///
    /// # Errors
    ///
    /// [`ToolError::InvalidInput`] when there is none, or it is no text.
    pub fn text_of(&self, name: &str) -> Result<&str, ToolError> {
        let given = &self[name];
        let why = if given.is_null() { "is required" } else { "must be a string" };
        given.as_str().ok_or_else(|| ToolError::InvalidInput(format!("{name} {why}")))
    }

    /// Returns a count, a size or a place that an argument names; `None` where there is none.
    ///
    /// # Errors
    ///
    /// [`ToolError::InvalidInput`] when it is no number, has a fraction or is out of range.
    pub fn whole_number(&self, name: &str) -> Result<Option<u64>, ToolError> {
        let given = &self[name];
        if given.is_null() {
            return Ok(None);
        }
        if let Some(number) = given.as_u64() {
            return Ok(Some(number));
        }
        let fields: Fields = self.read().unwrap_or_default();
        let number = fields.0.get(name).and_then(|text| text.read().ok());
        number.map(Some).ok_or_else(|| {
            let why = format!("{name} must be an integer from 0 to {}", u64::MAX);
            ToolError::InvalidInput(why)
        })
    }
}

/// Arguments by name.
#[derive(Default, Deserialize)]
struct Fields(BTreeMap<String, JsonText>);

impl From<Value> for Arguments {
    fn from(value: Value) -> Self {
        Self::new(value.into())
    }
}

/// `null` where there is no such argument.
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
