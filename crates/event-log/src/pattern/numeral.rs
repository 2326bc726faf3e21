//! JSON numbers; whole numbers are compared exactly.

use std::cmp::Ordering;
use std::ops::RangeInclusive;

use serde_json::Number;

/// A number. Whole numbers of up to 64 bits are exact.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Numeral {
    Float(f64),
    Whole(i128),
}

/// The range that serde_json represents exactly, with any of its features: from -2^63 to 2^64 - 1.
const EXACT: RangeInclusive<i128> = i64::MIN as i128..=u64::MAX as i128;

/// Limit above which a float is not a 128-bit number: 2^127.
const TOO_LARGE: f64 = 170_141_183_460_469_231_731_687_303_715_884_105_728.0;

impl Numeral {
    /// Parses a JSON number; `None` if the text is not a number or exceeds the range of floats.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.contains(char::is_whitespace) {
            return None;
        }
        let number: Number = serde_json::from_str(text).ok()?;
        match Self::from_number(&number)? {
            Self::Float(float) if !float.is_finite() => None,
            numeral => Some(numeral),
        }
    }

    /// Converts a JSON number; a number with too many digits becomes the nearest float.
    pub(crate) fn from_number(number: &Number) -> Option<Self> {
        // If serde_json keeps every digit, its conversions are less precise than the text.
        let text = number.to_string();
        let whole = text.parse::<i128>().ok().filter(|whole| EXACT.contains(whole));
        whole.map(Self::Whole).or_else(|| text.parse().map(Self::Float).ok())
    }

    /// Returns the largest whole number that is not greater.
    pub(crate) fn floor(self) -> i128 {
        match self {
            Self::Float(float) => whole(float.floor()),
            Self::Whole(whole) => whole,
        }
    }

    /// Returns the smallest whole number that is not less.
    pub(crate) fn ceil(self) -> i128 {
        match self {
            Self::Float(float) => whole(float.ceil()),
            Self::Whole(whole) => whole,
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
const fn whole(float: f64) -> i128 {
    float as i128
}

fn compare(number: i128, float: f64) -> Ordering {
    if float >= TOO_LARGE {
        return Ordering::Less;
    }
    if float < -TOO_LARGE {
        return Ordering::Greater;
    }
    let rest = 0.0_f64.partial_cmp(&(float - float.floor())).unwrap_or(Ordering::Equal);
    number.cmp(&whole(float.floor())).then(rest)
}

impl PartialEq for Numeral {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Numeral {}

impl PartialOrd for Numeral {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Numeral {
    fn cmp(&self, other: &Self) -> Ordering {
        match (*self, *other) {
            (Self::Whole(one), Self::Whole(other)) => one.cmp(&other),
            (Self::Whole(one), Self::Float(other)) => compare(one, other),
            (Self::Float(one), Self::Whole(other)) => compare(other, one).reverse(),
            // JSON has no text for a float that cannot be compared.
            (Self::Float(one), Self::Float(other)) => {
                one.partial_cmp(&other).unwrap_or(Ordering::Equal)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: X1
    #[test]
    fn numbers_are_ordered_as_they_are_written() {
        for (less, more) in [
            ("1", "2"),
            ("-1", "0"),
            ("1", "1.5"),
            ("-1.5", "-1"),
            ("9007199254740992", "9007199254740993"),
            ("18446744073709551614", "18446744073709551615"),
            ("18446744073709551615", "1e20"),
            ("-1e300", "-9223372036854775808"),
            ("1e40", "1e300"),
        ] {
            let (less, more) = (Numeral::parse(less).unwrap(), Numeral::parse(more).unwrap());
            assert!(less < more && less != more, "{less:?} {more:?}");
        }
        for same in ["5", "5.0", "5e0", "50e-1"] {
            assert_eq!(Numeral::parse(same), Numeral::parse("5"), "{same}");
        }
        assert_eq!(Numeral::parse("-0.0"), Numeral::parse("0"));
        for none in ["", "x", "+1", "1.", ".5", "0x1", "inf", "NaN", "1e999", "1 "] {
            assert!(Numeral::parse(none).is_none(), "{none}");
        }
    }
}
