//! JSON read by another library than `serde_json`: in order, with repeated keys.

use jiter::JsonValue;
use serde_json::{Map, Number, Value};

/// A part of a JSON document, or the absence of one, so that a path needs no check at each step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node<'a>(Option<&'a JsonValue<'static>>);

/// Reads a document.
pub(super) fn read(bytes: &[u8]) -> Result<JsonValue<'static>, String> {
    match JsonValue::parse(bytes, false) {
        Ok(value) => Ok(value.into_static()),
        Err(error) => Err(error.description(bytes)),
    }
}

impl<'a> Node<'a> {
    pub(super) const fn new(value: &'a JsonValue<'static>) -> Self {
        Self(Some(value))
    }

    /// Returns the value of the last field of this name, as most readers do.
    pub(super) fn get(self, key: &str) -> Self {
        Self(self.fields().rev().find(|(name, _)| *name == key).and_then(|(_, value)| value.0))
    }

    /// Follows field names that are separated by slashes.
    pub(super) fn path(self, path: &str) -> Self {
        path.split('/').fold(self, Self::get)
    }

    pub(super) fn item(self, index: usize) -> Self {
        self.items().nth(index).unwrap_or(Self(None))
    }

    pub(super) fn items(self) -> impl DoubleEndedIterator<Item = Self> + ExactSizeIterator {
        let items = match self.0 {
            Some(JsonValue::Array(items)) => items.as_slice(),
            _ => &[],
        };
        items.iter().map(Self::new)
    }

    pub(super) fn fields(self) -> impl DoubleEndedIterator<Item = (&'a str, Self)> {
        let fields = match self.0 {
            Some(JsonValue::Object(fields)) => fields.as_slice(),
            _ => &[],
        };
        fields.iter().map(|(name, value)| (&**name, Self::new(value)))
    }

    pub(super) fn text(self) -> Option<&'a str> {
        match self.0 {
            Some(JsonValue::Str(text)) => Some(text),
            _ => None,
        }
    }

    /// Returns the text; empty if this is not text.
    pub(super) fn text_or_empty(self) -> &'a str {
        self.text().unwrap_or_default()
    }

    pub(super) fn integer(self) -> Option<i64> {
        match self.0 {
            Some(JsonValue::Int(number)) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn is(self, text: &str) -> bool {
        self.text() == Some(text)
    }

    pub(super) const fn exists(self) -> bool {
        self.0.is_some()
    }

    /// Returns whether there is a value other than `null`.
    pub(super) const fn is_given(self) -> bool {
        !matches!(self.0, None | Some(JsonValue::Null))
    }

    pub(super) const fn is_true(self) -> bool {
        matches!(self.0, Some(JsonValue::Bool(true)))
    }

    pub(super) const fn is_false(self) -> bool {
        matches!(self.0, Some(JsonValue::Bool(false)))
    }

    pub(super) const fn is_array(self) -> bool {
        matches!(self.0, Some(JsonValue::Array(_)))
    }

    pub(super) const fn is_object(self) -> bool {
        matches!(self.0, Some(JsonValue::Object(_)))
    }

    /// Returns the name of this type of value in Go and Python.
    pub(super) const fn type_name(self) -> &'static str {
        match self.0 {
            None | Some(JsonValue::Null) => "null",
            Some(JsonValue::Bool(_)) => "bool",
            Some(JsonValue::Str(_)) => "string",
            Some(JsonValue::Array(_)) => "array",
            Some(JsonValue::Object(_)) => "object",
            Some(_) => "number",
        }
    }

    /// Returns the first key in this part for which `test` holds.
    pub(super) fn find_key(self, test: &dyn Fn(&str) -> bool) -> Option<&'a str> {
        let below = || self.fields().find_map(|(_, value)| value.find_key(test));
        let own = self.fields().map(|(name, _)| name).find(|name| test(name));
        own.or_else(below).or_else(|| self.items().find_map(|item| item.find_key(test)))
    }

    /// Returns the first key that an object in this part has twice.
    pub(super) fn repeated_key(self) -> Option<&'a str> {
        let mut names: Vec<&str> = self.fields().map(|(name, _)| name).collect();
        names.sort_unstable();
        let own = names.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
        let below = || self.fields().find_map(|(_, value)| value.repeated_key());
        own.or_else(below).or_else(|| self.items().find_map(Self::repeated_key))
    }

    /// Returns the value for a library that uses those of `serde_json`.
    pub(super) fn to_value(self) -> Value {
        match self.0 {
            None | Some(JsonValue::Null) => Value::Null,
            Some(JsonValue::Bool(value)) => Value::Bool(*value),
            Some(JsonValue::Int(number)) => Value::from(*number),
            Some(JsonValue::BigInt(number)) => {
                number.to_string().parse::<Number>().map_or(Value::Null, Value::Number)
            }
            Some(JsonValue::Float(number)) => Value::from(*number),
            Some(JsonValue::Str(text)) => Value::from(&**text),
            Some(JsonValue::Array(_)) => self.items().map(Self::to_value).collect(),
            Some(JsonValue::Object(_)) => {
                let fields = self.fields().map(|(name, value)| (name.to_owned(), value.to_value()));
                Value::Object(fields.collect::<Map<_, _>>())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reader_sees_hidden_and_repeated_keys() {
        let text = br#"{"a":[{"$serde_json::private::RawValue":"1"}],"b":{"c":1,"c":2}}"#;
        let value = read(text).unwrap();
        let node = Node::new(&value);
        assert!(node.find_key(&|key| key.starts_with("$serde_json")).is_some());
        assert_eq!(node.repeated_key(), Some("c"));
        assert_eq!(node.path("b/c").integer(), Some(2));
        assert!(read(b"{\"a\":1,}").is_err());
    }

    #[test]
    fn long_numbers_are_read() {
        let value = read(b"[123456789012345678901234567890,1e400]");
        assert_eq!(value.map(|value| Node::new(&value).items().len()), Ok(2));
    }
}
