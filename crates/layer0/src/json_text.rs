//! JSON that is carried as text.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

/// A JSON value as its text, for what is written far more often than it is looked into: in a tree of
/// [`Value`]s each object takes some 600 bytes, and is walked whenever it is written. Cloning shares
/// it.
///
/// Two are equal when their texts are; key order and white space count.
#[derive(Clone)]
pub struct JsonText(Arc<RawValue>);

impl JsonText {
    /// Writes a value as compact JSON.
    ///
    /// # Errors
    ///
    /// What the value's own [`Serialize`] fails with; a [`Value`] never does.
    pub fn of(value: &(impl Serialize + ?Sized)) -> Result<Self, serde_json::Error> {
        to_raw_value(value).map(Self::from)
    }

    /// Returns the text.
    #[must_use]
    pub fn get(&self) -> &str {
        self.0.get()
    }

    /// Reads it, or as much of it as `T` asks for.
    ///
    /// # Errors
    ///
    /// When it is no `T`; a [`Value`] it is always.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.get())
    }

    /// Returns it as a tree.
    #[must_use]
    pub fn to_value(&self) -> Value {
        // Text that was JSON once is JSON again.
        self.read().unwrap_or_default()
    }
}

impl From<Box<RawValue>> for JsonText {
    fn from(raw: Box<RawValue>) -> Self {
        Self(raw.into())
    }
}

impl From<&Value> for JsonText {
    fn from(value: &Value) -> Self {
        // A tree whose keys are strings always has a text.
        Self::of(value).unwrap_or_default()
    }
}

/// `null`.
impl Default for JsonText {
    fn default() -> Self {
        RawValue::NULL.to_owned().into()
    }
}

impl PartialEq for JsonText {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl fmt::Debug for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.get())
    }
}

impl Serialize for JsonText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for JsonText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn it_is_written_as_it_came_and_read_in_part() {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct Holder {
            inner: JsonText,
        }
        let text = r#"{"inner":{"b": 1, "a": [2]}}"#;
        let holder: Holder = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&holder).unwrap(), text);
        assert_eq!(holder.inner.to_value(), json!({ "a": [2], "b": 1 }));
        let through_a_tree: Holder = serde_json::from_value(json!({ "inner": [1] })).unwrap();
        assert_eq!(through_a_tree.inner, JsonText::from(&json!([1])));
        assert_eq!(serde_json::to_value(&through_a_tree).unwrap(), json!({ "inner": [1] }));
        assert_eq!(JsonText::default().to_value(), Value::Null);
        assert!(holder.inner.read::<Vec<u32>>().is_err());
    }
}
