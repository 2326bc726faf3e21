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
/// The text is compact and its keys are sorted, wherever it comes from, so that two are equal just when
/// they say the same. It is written with serde_json; another serializer gets what
/// [`RawValue`] gives it.
#[derive(Clone)]
pub struct JsonText(Arc<RawValue>);

impl JsonText {
    /// Writes a value.
    ///
    /// # Errors
    ///
    /// What the value's own [`Serialize`] fails with; a [`Value`] never does.
    pub fn of(value: &(impl Serialize + ?Sized)) -> Result<Self, serde_json::Error> {
        serde_json::to_value(value).and_then(Self::written)
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
    /// When it is no `T`, or nested deeper than serde_json reads: 128 levels.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.get())
    }

    fn written(mut value: Value) -> Result<Self, serde_json::Error> {
        // They are sorted already, unless some crate has serde_json keep them as they come.
        value.sort_all_objects();
        to_raw_value(&value).map(|text| Self(text.into()))
    }
}

impl From<&Value> for JsonText {
    fn from(value: &Value) -> Self {
        // A tree whose keys are strings always has a text.
        Self::written(value.clone()).unwrap_or_default()
    }
}

/// `null`.
impl Default for JsonText {
    fn default() -> Self {
        Self(RawValue::NULL.to_owned().into())
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
        let value = Value::deserialize(deserializer)?;
        Self::written(value).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Holder {
        inner: JsonText,
    }

    #[test]
    fn it_says_the_same_wherever_it_comes_from() {
        let holder: Holder = serde_json::from_str(r#"{"inner":{"b": 1, "a": [2]}}"#).unwrap();
        assert_eq!(serde_json::to_string(&holder).unwrap(), r#"{"inner":{"a":[2],"b":1}}"#);
        assert_eq!(holder.inner, JsonText::from(&json!({ "b": 1, "a": [2] })));
        assert_eq!(holder, serde_json::from_value(serde_json::to_value(&holder).unwrap()).unwrap());
        assert_eq!(JsonText::default().get(), "null");
    }

    #[test]
    fn it_is_read_in_part_and_refuses_what_it_is_not() {
        #[derive(Deserialize)]
        struct Part {
            a: Vec<u32>,
        }
        let text = JsonText::from(&json!({ "b": { "c": null }, "a": [2] }));
        assert_eq!(text.read::<Part>().unwrap().a, [2]);
        assert!(text.read::<Vec<u32>>().is_err());
        assert!(serde_json::from_str::<Holder>(r#"{"inner": 1e999}"#).is_err());
        let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
        assert!(JsonText::from(&deep).read::<Value>().is_err());
    }

    #[test]
    fn it_can_stand_in_what_is_flattened() {
        #[derive(Deserialize)]
        struct Outer {
            #[serde(flatten)]
            holder: Holder,
        }
        let outer: Outer = serde_json::from_str(r#"{"inner": {"x": 1}}"#).unwrap();
        assert_eq!(outer.holder.inner.get(), r#"{"x":1}"#);
    }
}
