//! Trees parsed from a text, with every key unchanged.
//!
//! serde_json gives objects with certain keys a special meaning: read into a [`Value`],
//! `{"$serde_json::private::RawValue": "[1]"}` becomes `[1]`, and an error if the inner text is not JSON
//! (<https://github.com/serde-rs/json/issues/1148>). Text from outside may contain such a key.

use serde::de::Error as _;
use serde_json::{Error, Map, Value};

use super::canonical::string_end;

/// Parses a canonical text in one pass.
pub(super) fn tree(text: &str) -> Result<Value, Error> {
    JsonReader { text, at: 0 }.value()
}

/// A position in a compact text, whose nesting is limited by the stack.
struct JsonReader<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> JsonReader<'t> {
    fn value(&mut self) -> Result<Value, Error> {
        match self.rest().as_bytes().first() {
            Some(b'{') => self.object().map(Value::Object),
            Some(b'[') => self.array().map(Value::Array),
            Some(b'"') => self.string().map(Value::String),
            _ => serde_json::from_str(self.scalar()),
        }
    }

    fn object(&mut self) -> Result<Map<String, Value>, Error> {
        let mut members = Map::new();
        self.skip(b'{')?;
        while !self.skips(b'}') {
            if !members.is_empty() {
                self.skip(b',')?;
            }
            let key = self.string()?;
            self.skip(b':')?;
            members.insert(key, self.value()?);
        }
        Ok(members)
    }

    fn array(&mut self) -> Result<Vec<Value>, Error> {
        let mut items = Vec::new();
        self.skip(b'[')?;
        while !self.skips(b']') {
            if !items.is_empty() {
                self.skip(b',')?;
            }
            items.push(self.value()?);
        }
        Ok(items)
    }

    fn string(&mut self) -> Result<String, Error> {
        let rest = self.rest();
        let token = string_end(rest).and_then(|end| rest.get(..end)).unwrap_or(rest);
        self.at += token.len();
        serde_json::from_str(token)
    }

    fn scalar(&mut self) -> &'t str {
        let rest = self.rest();
        let token = &rest[..rest.find([',', ']', '}']).unwrap_or(rest.len())];
        self.at += token.len();
        token
    }

    fn skip(&mut self, byte: u8) -> Result<(), Error> {
        if self.skips(byte) { Ok(()) } else { Err(Error::custom("the text is not canonical JSON")) }
    }

    /// Skips a byte if it is next, and returns whether it was.
    fn skips(&mut self, byte: u8) -> bool {
        let is_next = self.text.as_bytes().get(self.at) == Some(&byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::JsonText;

    /// Spec: E11
    #[test]
    fn special_keys_are_keys_like_others() {
        for key in ["$serde_json::private::RawValue", "$serde_json::private::Number"] {
            for inner in ["not json", "[1]", "7", ""] {
                let text = format!(r#"{{"a":[{{"{key}":"{inner}"}}]}}"#);
                let value = JsonText::parse(&text).unwrap().value();
                assert_eq!(value["a"][0][key], json!(inner), "{text}");
                assert_eq!(JsonText::from(value).get(), text);
            }
        }
    }

    #[test]
    fn a_text_that_is_no_json_is_refused() {
        for text in ["", "{", "[1", "[1 2]", "{\"a\"}", "{\"a\":1 \"b\":2}", "\"", "nul", "é"] {
            assert!(tree(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_tree_is_what_serde_json_reads(text in "[\\[\\]{},:\"\\\\a0-9.e+ -]{0,16}") {
            if let Ok(text) = JsonText::parse(&text) {
                prop_assert_eq!(text.value(), serde_json::from_str::<Value>(text.get()).unwrap());
            }
        }
    }
}
