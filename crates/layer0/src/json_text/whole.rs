//! Numbers without a fraction that are read as integers.

use std::fmt;

use serde::Deserialize;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, MapAccess, SeqAccess,
    Unexpected, VariantAccess, Visitor,
};
use serde_json::Error;
use serde_json::value::RawValue;

/// Deserialises a text in which a number without a fraction, such as `5.0` or `5e0`, is an integer if `T` requires one:
/// JSON Schema accepts it as an integer, serde does not. All other numbers are read as written.
///
/// # Errors
///
/// Fails if the text is no `T` even then.
pub(super) fn read_whole<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let read = T::deserialize(Whole(&mut deserializer))?;
    deserializer.end()?;
    Ok(read)
}

/// A wrapper around a part of serde's protocol, which also wraps nested deserializers.
struct Whole<P>(P);

macro_rules! hand_on {
    ($($method:ident($($argument:ident: $kind:ty),*))*) => {
        $(
            fn $method<V: Visitor<'de>>(
                self,
                $($argument: $kind,)*
                visitor: V,
            ) -> Result<V::Value, Self::Error> {
                self.0.$method($($argument,)* WholeVisitor::new(visitor))
            }
        )*
    };
}

macro_rules! integers {
    ($($method:ident)*) => {
        $(
            fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
                integer(self.0, visitor)
            }
        )*
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Whole<D> {
    type Error = D::Error;

    integers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
    }

    hand_on! {
        deserialize_bool()
        deserialize_f32()
        deserialize_f64()
        deserialize_char()
        deserialize_str()
        deserialize_string()
        deserialize_bytes()
        deserialize_byte_buf()
        deserialize_option()
        deserialize_unit()
        deserialize_unit_struct(name: &'static str)
        deserialize_newtype_struct(name: &'static str)
        deserialize_seq()
        deserialize_tuple(length: usize)
        deserialize_tuple_struct(name: &'static str, length: usize)
        deserialize_map()
        deserialize_struct(name: &'static str, fields: &'static [&'static str])
        deserialize_enum(name: &'static str, variants: &'static [&'static str])
        deserialize_identifier()
        deserialize_ignored_any()
    }

    /// The requested type is unknown here: serde stores a flattened or untagged value first, and reads it later.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        self.0.deserialize_any(WholeVisitor { visitor, is_any: true })
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

/// Reads a number from its text, because a float cannot hold every integer.
fn integer<'de, D: Deserializer<'de>, V: Visitor<'de>>(
    deserializer: D,
    visitor: V,
) -> Result<V::Value, D::Error> {
    let number = <&'de RawValue>::deserialize(deserializer)?.get();
    let whole = whole_number(number).unwrap_or_default();
    if let Ok(integer) = whole.parse() {
        visitor.visit_u64(integer)
    } else if let Ok(integer) = whole.parse() {
        visitor.visit_i64(integer)
    } else if let Ok(integer) = whole.parse() {
        visitor.visit_u128(integer)
    } else if let Ok(integer) = whole.parse() {
        visitor.visit_i128(integer)
    } else {
        Err(D::Error::invalid_type(Unexpected::Other(number), &visitor))
    }
}

struct WholeVisitor<V> {
    visitor: V,
    /// Whether any type is accepted.
    is_any: bool,
}

impl<V> WholeVisitor<V> {
    const fn new(visitor: V) -> Self {
        Self { visitor, is_any: false }
    }
}

macro_rules! hand_back {
    ($($method:ident($kind:ty))*) => {
        $(
            fn $method<E: serde::de::Error>(self, value: $kind) -> Result<V::Value, E> {
                self.visitor.$method(value)
            }
        )*
    };
}

impl<'de, V: Visitor<'de>> Visitor<'de> for WholeVisitor<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    hand_back! {
        visit_bool(bool)
        visit_i64(i64)
        visit_i128(i128)
        visit_u64(u64)
        visit_u128(u128)
        visit_str(&str)
        visit_borrowed_str(&'de str)
        visit_string(String)
        visit_bytes(&[u8])
        visit_borrowed_bytes(&'de [u8])
        visit_byte_buf(Vec<u8>)
    }

    #[expect(clippy::cast_possible_truncation, reason = "it is within the integers of a float")]
    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<V::Value, E> {
        const EXACT: f64 = 9_007_199_254_740_992.0;
        let is_integer = number.fract() == 0.0 && number.abs() < EXACT;
        match self.is_any && is_integer {
            true if number < 0.0 => self.visitor.visit_i64(number as i64),
            true => self.visitor.visit_u64((number as i64).unsigned_abs()),
            false => self.visitor.visit_f64(number),
        }
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_none()
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.visitor.visit_some(Whole(inner))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.visitor.visit_newtype_struct(Whole(inner))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_seq(Whole(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_map(Whole(members))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_enum(Whole(variant))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Whole<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(Whole(deserializer))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Whole<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        self.0.next_element_seed(Whole(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

/// Keys are strings, including keys that are read as integers.
impl<'de, A: MapAccess<'de>> MapAccess<'de> for Whole<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        self.0.next_key_seed(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.0.next_value_seed(Whole(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: EnumAccess<'de>> EnumAccess<'de> for Whole<A> {
    type Error = A::Error;
    type Variant = Whole<A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Self::Variant), A::Error> {
        self.0.variant_seed(seed).map(|(name, variant)| (name, Whole(variant)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Whole<A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.0.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.0.newtype_variant_seed(Whole(seed))
    }

    fn tuple_variant<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.0.tuple_variant(length, WholeVisitor::new(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.0.struct_variant(fields, WholeVisitor::new(visitor))
    }
}

/// Maximum number of digits; longer integers fit into no type.
const MAX_DIGITS: usize = 64;

/// Returns the digits of a number that is an integer; `None` if it has a fraction.
fn whole_number(number: &str) -> Option<String> {
    let (sign, number) = match number.strip_prefix('-') {
        Some(number) => ("-", number),
        None => ("", number),
    };
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (before, behind) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = [before, behind].concat();
    let significant = digits.trim_start_matches('0');
    if significant.is_empty() {
        return Some("0".to_owned());
    }
    // The number of digits before the point.
    let shift = exponent.parse::<i32>().ok()?;
    let before = i32::try_from(before.len()).ok()?.checked_add(shift)?;
    let leading = digits.len() - significant.len();
    let whole = usize::try_from(before).ok()?.checked_sub(leading)?;
    if whole == 0 || whole > MAX_DIGITS {
        return None;
    }
    let (integer, fraction) = significant.split_at(whole.min(significant.len()));
    if fraction.bytes().any(|digit| digit != b'0') {
        return None;
    }
    Some(format!("{sign}{integer}{}", "0".repeat(whole - integer.len())))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::JsonText;

    #[test]
    fn numbers_without_a_fraction_are_integers() {
        for (number, whole) in [
            ("5", Some("5")),
            ("5.0", Some("5")),
            ("-5.00", Some("-5")),
            ("5e0", Some("5")),
            ("5E3", Some("5000")),
            ("1.5e1", Some("15")),
            ("1500e-2", Some("15")),
            ("0.05e2", Some("5")),
            ("0.0", Some("0")),
            ("-0.0", Some("0")),
            ("0e99999999999", Some("0")),
            ("18446744073709551615.0", Some("18446744073709551615")),
            ("9007199254740993.0", Some("9007199254740993")),
            ("5.5", None),
            ("1e-1", None),
            ("0.5", None),
            ("15e-1", None),
            ("1e65", None),
            ("1e99999999999", None),
        ] {
            assert_eq!(whole_number(number).as_deref(), whole, "{number}");
        }
    }

    #[derive(Debug, PartialEq, Deserialize)]
    enum Change {
        By(i8),
        Of { id: u16 },
        Pair(u8, f64),
        None,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Rest {
        page: u32,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Pay {
        count: u64,
        most: Option<i128>,
        changes: Vec<Change>,
        by_id: BTreeMap<u8, u8>,
        amount: JsonText,
        ratio: f64,
    }

    /// Spec: P12
    #[test]
    fn only_asked_integers_change() {
        let text = r#"{"count":18446744073709551615.0,"most":-1e20,"ratio":2.0,"by_id":{"7":1.0},
            "changes":[{"By":-3.0},{"Of":{"id":5e0}},{"Pair":[1.0,2.5]},"None"],"amount":{"eur":3.00,"n":[1e3,"5.0"]}}"#;
        let read: Pay = read_whole(text).unwrap();
        let changes =
            vec![Change::By(-3), Change::Of { id: 5 }, Change::Pair(1, 2.5), Change::None];
        let expected = Pay {
            count: u64::MAX,
            most: Some(-100_000_000_000_000_000_000),
            changes,
            by_id: BTreeMap::from([(7, 1)]),
            amount: JsonText::parse(r#"{"eur":3.00,"n":[1e3,"5.0"]}"#).unwrap(),
            ratio: 2.0,
        };
        assert_eq!(read, expected);
        assert_eq!(read.amount.get(), r#"{"eur":3.00,"n":[1e3,"5.0"]}"#);
        let kept: Rest = read_whole(r#"{"page":5.0,"other":1.5}"#).unwrap();
        assert_eq!(kept, Rest { page: 5 });
        for text in ["5.5", "\"5\"", "256.0", "-1.0", "1e99", "null", "[5]", "5.0 5", "5.0]"] {
            assert!(read_whole::<u8>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn flattened_integers_may_have_a_fraction() {
        #[derive(Debug, PartialEq, Deserialize)]
        struct Search {
            limit: u8,
            #[serde(flatten)]
            rest: Rest,
        }
        // With `arbitrary_precision`, serde_json stores numbers in a form that serde does not know.
        let number: serde_json::Value = serde_json::from_str("1.10").unwrap();
        if number.to_string().len() == "1.10".len() {
            return;
        }
        let read: Search = read_whole(r#"{"limit":2.0,"page":5.0}"#).unwrap();
        assert_eq!(read, Search { limit: 2, rest: Rest { page: 5 } });
        assert!(read_whole::<Search>(r#"{"limit":2.0,"page":5.5}"#).is_err());
    }
}
