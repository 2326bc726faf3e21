//! Lists of texts, read one by one, so that an error is reported at its own text.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, SeqAccess, Visitor};

/// Reads each text of a list. The error of a text is at its own place in the file, not at that of the list.
pub(crate) fn read_each_text<'de, D: Deserializer<'de>, T>(
    from: D,
    read: fn(&str) -> Result<T, String>,
) -> Result<Vec<T>, D::Error> {
    from.deserialize_seq(TextList(read))
}

struct TextList<T>(fn(&str) -> Result<T, String>);

impl<'de, T> Visitor<'de> for TextList<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
        let mut texts = Vec::new();
        while let Some(text) = list.next_element_seed(ListedText(self.0))? {
            texts.push(text);
        }
        Ok(texts)
    }
}

struct ListedText<T>(fn(&str) -> Result<T, String>);

impl<'de, T> DeserializeSeed<'de> for ListedText<T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<T, D::Error> {
        from.deserialize_str(self)
    }
}

impl<T> Visitor<'_> for ListedText<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.0)(text).map_err(E::custom)
    }
}
