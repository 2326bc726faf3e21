//! JSON values that are kept as text.

mod canonical;
mod tagged;
mod taken;
mod tree;
mod whole;

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use canonical::{EqualKeys, StringMap, canonical};
use tree::tree;

pub use tagged::{TaggedText, read_tagged};

/// Maximum nesting of text from models and tools: a record has to be read again, and serde_json reads up to 128 levels.
pub(crate) const MAX_DEPTH: usize = 100;
/// Maximum nesting of anything in a record; definitions contain schemas.
const MAX_RECORDED_DEPTH: usize = 120;
/// Maximum nesting of a tree that is written as text, because writing recurses.
const MAX_TREE_DEPTH: usize = 1_000;

/// A JSON value as text. It is used for values of models and tools, so that numbers are passed on as written (`3.10`,
/// `1234e10`, `18446744073709551616`), and for values that are written much more often than inspected. Clones share the
/// text.
///
/// The text is always compact, with sorted keys and finite numbers, so two values are equal exactly if they have the
/// same content in the same notation. It is read and written with serde_json; another serializer gets the
/// representation of [`RawValue`]. It cannot be a flattened field, or the content of a newtype variant of an internally
/// tagged enum: serde writes those field by field, and a raw value then becomes an object with a private key of
/// serde_json. `cargo xtask tidy` checks that.
///
/// ```
/// use layer0::JsonText;
///
/// let price = JsonText::parse(r#"{ "price": 3.10, "at": "x" }"#)?;
/// assert_eq!(price.get(), r#"{"at":"x","price":3.10}"#);
/// assert_eq!(price.value()["price"], 3.1);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone)]
pub struct JsonText(Arc<RawValue>);

impl JsonText {
    /// Parses a text of a model or a tool.
    ///
    /// # Errors
    ///
    /// Fails if the text is not JSON, contains a number beyond the range of 64-bit floats, or is nested deeper than 100
    /// levels.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        Self::canonical(text, MAX_DEPTH)
    }

    /// Parses the arguments of a call. An object that has a key twice is refused, because its readers may not agree on the
    /// value that counts; [`JsonText::parse`] keeps the last one.
    ///
    /// ```
    /// use layer0::JsonText;
    ///
    /// let twice = r#"{"to": "ada", "to": "bob"}"#;
    /// let error = JsonText::parse_arguments(twice).unwrap_err();
    /// assert_eq!(error.to_string(), "the key `to` occurs twice");
    /// assert_eq!(JsonText::parse(twice)?.get(), r#"{"to":"bob"}"#);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`JsonText::parse`]; also if an object has a key twice.
    pub fn parse_arguments(text: &str) -> Result<Self, serde_json::Error> {
        canonical(text, MAX_DEPTH, EqualKeys::Refused, None).map(|text| Self(text.into()))
    }

    /// Serialises a value.
    ///
    /// # Errors
    ///
    /// Any error of the value's own [`Serialize`]; also if it is nested deeper than 120 levels.
    pub fn from_value(value: &(impl Serialize + ?Sized)) -> Result<Self, serde_json::Error> {
        Self::canonical(&serde_json::to_string(value)?, MAX_RECORDED_DEPTH)
    }

    /// Creates a JSON string with this text.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "a string of JSON is nested nowhere")]
    pub fn string(text: &str) -> Self {
        Self::from_value(text).expect("a string of JSON is nested nowhere")
    }

    /// Returns the text.
    #[must_use]
    pub fn get(&self) -> &str {
        self.0.get()
    }

    /// Deserialises the value as a `T`, which may ignore some parts. A number without a fraction, such as `5.0`, is an
    /// integer if `T` requires one, as JSON Schema defines it; other numbers keep their text.
    ///
    /// # Errors
    ///
    /// Fails if the value is no `T`.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.get())
            .or_else(|error| whole::read_whole(self.get()).map_err(|_| error))
    }

    /// Returns the value as a tree. Every key is kept as it is, even if serde_json gives it a special meaning; numbers
    /// are 64-bit integers or floats.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "a canonical text has a tree")]
    pub fn value(&self) -> Value {
        tree(self.get()).expect("a canonical text has a tree")
    }

    /// Returns whether the value is an object.
    #[must_use]
    pub fn is_object(&self) -> bool {
        self.get().starts_with('{')
    }

    /// Returns the content of a string; `None` for other values.
    #[must_use]
    pub fn as_string(&self) -> Option<Cow<'_, str>> {
        let inner = self.get().strip_prefix('"')?.strip_suffix('"')?;
        if inner.contains('\\') { self.read().ok().map(Cow::Owned) } else { Some(inner.into()) }
    }

    /// Returns the text to show: the content of a string, otherwise the JSON.
    #[must_use]
    pub fn display_text(&self) -> Cow<'_, str> {
        self.as_string().unwrap_or_else(|| self.get().into())
    }

    /// Returns the value over several lines, indented by two spaces.
    #[must_use]
    pub fn pretty(&self) -> String {
        canonical::pretty(self.get())
    }

    /// Returns the value with all strings, including keys, replaced by the result of `map`; a changed number becomes a
    /// string.
    #[must_use]
    pub fn map_strings(&self, map: &mut dyn FnMut(&str) -> Cow<'_, str>) -> Self {
        self.map(StringMap { text: map, numbers: true })
    }

    /// Makes one whose strings, keys included, are what `map` makes of them. Numbers stay as they are.
    #[must_use]
    pub fn map_strings_only(&self, map: &mut dyn FnMut(&str) -> Cow<'_, str>) -> Self {
        self.map(StringMap { text: map, numbers: false })
    }

    fn map(&self, map: StringMap<'_>) -> Self {
        // A canonical text has each key once, so `map` made the keys equal.
        let mapped = canonical(self.get(), MAX_RECORDED_DEPTH, EqualKeys::Numbered, Some(map));
        Self(mapped.expect("a text that was written once can be written again").into())
    }

    fn canonical(text: &str, max_depth: usize) -> Result<Self, serde_json::Error> {
        canonical(text, max_depth, EqualKeys::LastOne, None).map(|text| Self(text.into()))
    }
}

/// A tree that is nested deeper than 100 levels becomes a string with its text; beyond 1,000 levels, a string with a
/// note.
impl From<Value> for JsonText {
    fn from(value: Value) -> Self {
        let text = Self::from(&value);
        if is_deeper(&value, MAX_TREE_DEPTH) {
            take_apart(value);
        }
        text
    }
}

/// Converts like the owned [`Value`].
impl From<&Value> for JsonText {
    fn from(value: &Value) -> Self {
        if is_deeper(value, MAX_TREE_DEPTH) {
            return Self::string(&format!("(a value nested deeper than {MAX_TREE_DEPTH} levels)"));
        }
        // Most values are short; a growing text is copied several times.
        let mut text = String::with_capacity(64);
        let _ = write!(text, "{value}");
        Self::parse(&text).unwrap_or_else(|_| Self::string(&text))
    }
}

/// Parses a text from outside, such as the body of a response, with every key unchanged.
///
/// serde_json itself gives some keys a special meaning: it parses `{"$serde_json::private::RawValue": "1"}` as `1`.
///
/// ```
/// let value = layer0::read_value(r#"{"$serde_json::private::RawValue": "1"}"#)?;
/// assert_eq!(value["$serde_json::private::RawValue"], "1");
/// # Ok::<(), serde_json::Error>(())
/// ```
///
/// # Errors
///
/// Fails if the text is not JSON, contains a number beyond the range of 64-bit floats, or is nested deeper than 120
/// levels.
pub fn read_value(text: &str) -> Result<Value, serde_json::Error> {
    JsonText::canonical(text, MAX_RECORDED_DEPTH).map(|text| text.value())
}

/// Drops a value level by level, because its own drop recurses.
pub(crate) fn take_apart(value: Value) {
    let mut left = vec![value];
    while let Some(value) = left.pop() {
        match value {
            Value::Array(items) => left.extend(items),
            Value::Object(fields) => left.extend(fields.into_iter().map(|(_, value)| value)),
            _ => {}
        }
    }
}

/// Returns whether a value is nested deeper than this many levels; a scalar has no level.
#[must_use]
pub fn is_deeper(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(items) => levels == 0 || items.iter().any(|item| is_deeper(item, levels - 1)),
        Value::Object(fields) => {
            levels == 0 || fields.values().any(|item| is_deeper(item, levels - 1))
        }
        _ => false,
    }
}

/// Returns `null`.
impl Default for JsonText {
    fn default() -> Self {
        Self(RawValue::NULL.to_owned().into())
    }
}

impl PartialEq for JsonText {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.get() == other.get()
    }
}

impl Eq for JsonText {}

/// Equal if the values have the same notation; `1.0` is not equal to `1`.
impl PartialEq<Value> for JsonText {
    fn eq(&self, other: &Value) -> bool {
        self.get() == Self::from(other).get()
    }
}

impl fmt::Debug for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.get())
    }
}

impl fmt::Display for JsonText {
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
        let text = Box::<RawValue>::deserialize(deserializer)?;
        Self::canonical(text.get(), MAX_RECORDED_DEPTH).map_err(serde::de::Error::custom)
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
        assert_eq!(holder.inner, json!({ "b": 1, "a": [2] }));
        assert_eq!(holder, serde_json::from_value(serde_json::to_value(&holder).unwrap()).unwrap());
        assert_eq!(JsonText::default().get(), "null");
    }

    /// Spec: P12
    #[test]
    fn serialised_numbers_keep_their_text() {
        let text = r#"{"inner":{"a":3.10,"b":340282366920938463463374607431768211456}}"#;
        let holder: Holder = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&holder).unwrap(), text);
        assert_eq!(JsonText::from_value(&holder).unwrap().get(), text);
        assert_eq!(JsonText::from_value(&u128::MAX).unwrap().get(), u128::MAX.to_string());
    }

    #[test]
    fn partial_reads_refuse_foreign_files() {
        #[derive(Deserialize)]
        struct Part {
            a: Vec<u32>,
        }
        let text = JsonText::from(&json!({ "b": { "c": null }, "a": [2] }));
        assert_eq!(text.read::<Part>().unwrap().a, [2]);
        assert!(text.read::<Vec<u32>>().is_err());
        assert!(serde_json::from_str::<Holder>(r#"{"inner": 1e999}"#).is_err());
    }

    #[test]
    fn a_number_without_a_fraction_is_that_integer() {
        #[derive(Debug, PartialEq, Deserialize)]
        struct Page {
            offset: u64,
            ratio: f64,
        }
        let read = |text: &str| JsonText::parse(text).unwrap().read::<Page>();
        let page = Page { offset: 18_446_744_073_709_551_615, ratio: 2.0 };
        assert_eq!(read(r#"{"offset": 18446744073709551615.0, "ratio": 2.0}"#).unwrap(), page);
        assert!(read(r#"{"offset": 5.5, "ratio": 2}"#).is_err());
        let error = read(r#"{"offset": -5.0, "ratio": 2}"#).unwrap_err();
        assert!(error.to_string().contains("-5.0"), "{error}");
    }

    #[test]
    fn a_deep_tree_becomes_a_string() {
        let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!([inner]));
        assert!(JsonText::from(nested(100)).value().is_array());
        let deep = JsonText::from(nested(101));
        assert_eq!(deep.as_string().as_deref(), Some(nested(101).to_string().as_str()));
        let deeper = (0..100_000).fold(json!(1), |inner, _| Value::Array(vec![inner]));
        assert!(JsonText::from(deeper).get().contains("deeper than 1000 levels"));
        let text = "[".repeat(121) + &"]".repeat(121);
        assert!(serde_json::from_str::<JsonText>(&text).is_err());
        assert!(serde_json::from_str::<JsonText>(&text[1..241]).unwrap().value().is_array());
    }

    #[test]
    fn strings_are_shown_without_quotes() {
        assert_eq!(JsonText::string("a\"b\n").display_text(), "a\"b\n");
        assert_eq!(JsonText::string("plain").as_string().as_deref(), Some("plain"));
        assert_eq!(JsonText::from(json!([1])).as_string(), None);
        let text = JsonText::parse(r#"{"key":["a key",3.10]}"#).unwrap();
        let mapped = text.map_strings(&mut |text| match text.contains("key") {
            true => text.replace("key", "[x]").into(),
            false => text.to_owned().into(),
        });
        assert_eq!(mapped.get(), r#"{"[x]":["a [x]",3.10]}"#);
        let mapped = text.map_strings(&mut |text| text.replace("3.1", "[x]").into());
        assert_eq!(mapped.get(), r#"{"key":["a key","[x]0"]}"#);
        let mapped = text.map_strings_only(&mut |text| text.replace(['3', 'a'], "[x]").into());
        assert_eq!(mapped.get(), r#"{"key":["[x] key",3.10]}"#);
    }
}
