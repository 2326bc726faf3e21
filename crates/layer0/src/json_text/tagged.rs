//! Enums with a field that names the variant.

use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, IgnoredAny, MapAccess, VariantAccess,
    Visitor,
};
use serde::{Deserialize, forward_to_deserialize_any};
use serde_json::value::RawValue;
use serde_json::{Deserializer as Json, Error};

/// Deserialises an enum from JSON text whose field `tag` names the variant. The enum derives [`Deserialize`] with
/// `remote = "Self"` and without `tag`, which generates the function for `read`.
///
/// `#[serde(tag = …)]` would read through serde's own values: numbers lose their text there, and cannot be read at all
/// if another crate enables `arbitrary_precision` of serde_json.
///
/// ```
/// use layer0::{JsonText, read_tagged};
/// use serde::{Deserialize, Deserializer};
///
/// #[derive(Deserialize)]
/// #[serde(remote = "Self", rename_all = "snake_case")]
/// enum Block {
///     ToolUse { input: JsonText },
///     #[serde(other)]
///     Unknown,
/// }
///
/// impl<'de> Deserialize<'de> for Block {
///     fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
///         read_tagged(deserializer, "type", |block| Self::deserialize(block))
///     }
/// }
///
/// let block: Block = serde_json::from_str(r#"{"type": "tool_use", "input": [3.10]}"#)?;
/// assert!(matches!(block, Block::ToolUse { input } if input.get() == "[3.10]"));
/// # Ok::<(), serde_json::Error>(())
/// ```
///
/// # Errors
///
/// Any error of `read`; also if the text is no object, or the field is missing or no string.
pub fn read_tagged<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    tag: &'static str,
    read: impl FnOnce(TaggedText<'_>) -> Result<T, Error>,
) -> Result<T, D::Error> {
    let text = Box::<RawValue>::deserialize(deserializer)?;
    let text = text.get();
    let variant = FindTag(tag).deserialize(&mut Json::from_str(text));
    let read = variant.and_then(|variant| read(TaggedText { variant: &variant, text }));
    read.map_err(D::Error::custom)
}

/// An object with the name of its variant.
#[derive(Debug, Clone, Copy)]
pub struct TaggedText<'t> {
    variant: &'t str,
    text: &'t str,
}

impl<'de> Deserializer<'de> for TaggedText<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_enum(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier
        ignored_any
    }
}

impl<'t> EnumAccess<'t> for TaggedText<'t> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'t>>(self, seed: V) -> Result<(V::Value, Self), Error> {
        Ok((seed.deserialize(StrDeserializer::<Error>::new(self.variant))?, self))
    }
}

impl<'t> VariantAccess<'t> for TaggedText<'t> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'t>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(&mut Json::from_str(self.text))
    }

    fn tuple_variant<V: Visitor<'t>>(self, _: usize, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("a list has no fields"))
    }

    fn struct_variant<V: Visitor<'t>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        Json::from_str(self.text).deserialize_struct("", fields, visitor)
    }
}

/// Seed that returns the text of a field.
struct FindTag(&'static str);

impl<'t> DeserializeSeed<'t> for FindTag {
    type Value = String;

    fn deserialize<D: Deserializer<'t>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'t> Visitor<'t> for FindTag {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with `{}`", self.0)
    }

    fn visit_map<A: MapAccess<'t>>(self, mut fields: A) -> Result<String, A::Error> {
        let mut found = None;
        while let Some(key) = fields.next_key::<String>()? {
            if key == self.0 {
                found = Some(fields.next_value()?);
            } else {
                fields.next_value::<IgnoredAny>()?;
            }
        }
        found.ok_or_else(|| A::Error::missing_field(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(remote = "Self", rename_all = "snake_case")]
    enum Shape {
        Circle {
            radius: f64,
            #[serde(default)]
            count: u64,
        },
        Line(Line),
        Dot,
        #[serde(other)]
        Other,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Line {
        length: u64,
    }

    impl<'de> Deserialize<'de> for Shape {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            read_tagged(deserializer, "kind", |shape| Self::deserialize(shape))
        }
    }

    /// Spec: P12
    #[test]
    fn the_field_names_the_variant_wherever_it_stands() {
        #[track_caller]
        fn check(text: &str, expected: Shape) {
            assert_eq!(serde_json::from_str::<Shape>(text).unwrap(), expected);
        }
        check(
            r#"{"radius": 1.5, "kind": "circle", "count": 3}"#,
            Shape::Circle { radius: 1.5, count: 3 },
        );
        check(r#"{"kind": "line", "length": 2, "more": [1e400]}"#, Shape::Line(Line { length: 2 }));
        check(r#"{"kind": "dot", "radius": 1}"#, Shape::Dot);
        check(r#"{"kind": "cube"}"#, Shape::Other);
        for text in ["{}", "[]", r#"{"kind": 1}"#, r#"{"kind": "circle"}"#] {
            assert!(serde_json::from_str::<Shape>(text).is_err(), "{text}");
        }
    }
}
