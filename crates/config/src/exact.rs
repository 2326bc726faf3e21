//! Checks for TOML values that have no exact form in JSON: they are refused, never changed. The checks do not depend on
//! features of `serde_json` that other crates enable, which accept longer integers.

use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::ConfigError;

/// Refuses integers beyond 64 bits, floats that a 64-bit float would change, infinite numbers, and dates.
pub(crate) fn check_values(path: &Path, text: &str) -> Result<(), ConfigError> {
    // Text that is no TOML was refused before.
    let Ok(table) = DeTable::parse(text) else { return Ok(()) };
    let Some(Inexact { key, span, what, hint }) = in_table(table.get_ref()) else {
        return Ok(());
    };
    let error = ConfigError::new(path, format!("`{key}`: {what}"));
    Err(error.in_text(text, span).with_hint(hint))
}

/// A value without an exact form.
struct Inexact {
    /// The nearest key above the value.
    key: String,
    span: Range<usize>,
    what: String,
    hint: &'static str,
}

fn in_table(table: &DeTable<'_>) -> Option<Inexact> {
    table.iter().find_map(|(key, value)| in_value(key.get_ref(), value))
}

fn in_value(key: &str, value: &Spanned<DeValue<'_>>) -> Option<Inexact> {
    let inexact =
        |what, hint| Some(Inexact { key: key.to_owned(), span: value.span(), what, hint });
    match value.get_ref() {
        DeValue::Table(table) => in_table(table),
        DeValue::Array(values) => values.iter().find_map(|value| in_value(key, value)),
        DeValue::Datetime(date) => {
            inexact(format!("there are no dates in JSON: {date}"), "write it in quotes")
        }
        DeValue::Integer(integer) => {
            let fits = i64::from_str_radix(integer.as_str(), integer.radix()).is_ok()
                || u64::from_str_radix(integer.as_str(), integer.radix()).is_ok();
            if fits {
                return None;
            }
            inexact(
                format!("a whole number beyond what can be kept: {integer}"),
                "write one from -2^63 to 2^64 - 1, or in quotes as text",
            )
        }
        DeValue::Float(float) => match float.as_str().parse::<f64>() {
            Ok(read) if !read.is_finite() => {
                inexact(format!("no JSON number: {}", float.as_str()), "write a finite number")
            }
            Ok(read) if is_same(float.as_str(), read) => None,
            _ => inexact(
                format!("a number with more digits than can be kept: {}", float.as_str()),
                "write it with at most 15 digits, or in quotes as text",
            ),
        },
        _ => None,
    }
}

/// Returns whether a float keeps the written digits. The shortest text of a float is the number that is kept.
fn is_same(written: &str, read: f64) -> bool {
    digits(written).is_some_and(|written| Some(written) == digits(&format!("{read:e}")))
}

/// Returns the significant digits of a decimal number, and the power of ten of the last digit.
fn digits(number: &str) -> Option<(String, i64)> {
    let number = number.trim_start_matches(['+', '-']);
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    let significant = all.trim_start_matches('0').trim_end_matches('0');
    if significant.is_empty() {
        return Some((String::new(), 0));
    }
    let cut = all.len() - all.trim_end_matches('0').len();
    let exponent: i64 = exponent.parse().ok()?;
    let shift = i64::try_from(cut).ok()?.checked_sub(i64::try_from(fraction.len()).ok()?)?;
    Some((significant.to_owned(), exponent.checked_add(shift)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: C5, C6
    #[test]
    fn numbers_that_a_float_would_change_are_refused() {
        #[track_caller]
        fn check(value: &str, refused: Option<&str>) {
            let text = format!("a = 1\n[b]\nrows = [1, {{ n = {value} }}]\n");
            let error = check_values(Path::new("x.toml"), &text).err();
            let error = error.map(|error| error.to_string());
            assert_eq!(error, refused.map(|what| format!("x.toml:3: `n`: {what}")), "{value}");
        }
        for exact in [
            "0.0",
            "-0.0",
            "0e9",
            "3.10",
            "0.1",
            "1e22",
            "1_000.000_1",
            "-12.5e-3",
            "+1.50E+2",
            "9007199254740993",
            "9223372036854775807",
            "0xff",
            "18446744073709551615",
            "-9223372036854775808",
            "100000000000000000000.0",
            "1.7976931348623157e308",
            "5e-324",
            "\"0.1234567890123456789\"",
            "true",
        ] {
            check(exact, None);
        }
        let more = |written: &str| format!("a number with more digits than can be kept: {written}");
        for written in
            ["0.1234567890123456789", "9007199254740993.0", "1e-400", "123456789012345678901e0"]
        {
            check(written, Some(&more(written)));
        }
        let beyond = |written: &str| format!("a whole number beyond what can be kept: {written}");
        for written in ["18446744073709551616", "-9223372036854775809", "0x1ffffffffffffffff"] {
            check(written, Some(&beyond(written)));
        }
        check("1.2345678901234567_8", Some(&more("1.23456789012345678")));
        check("inf", Some("no JSON number: inf"));
        check("-inf", Some("no JSON number: -inf"));
        check("nan", Some("no JSON number: nan"));
        check("1979-05-27", Some("there are no dates in JSON: 1979-05-27"));
    }
}
