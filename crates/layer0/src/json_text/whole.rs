//! Numbers without a fraction.

/// Writes every number of a compact text that has no fraction as an integer: `5.0` and `5e0` as `5`.
/// JSON Schema takes them for integers, which serde does not.
pub(super) fn with_whole_numbers(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' => string_length(rest),
            '-' | '0'..='9' => rest.find([',', ']', '}']).unwrap_or(rest.len()),
            other => other.len_utf8(),
        };
        let (token, behind) = rest.split_at(length);
        let whole = matches!(first, '-' | '0'..='9').then(|| whole_number(token)).flatten();
        out.push_str(whole.as_deref().unwrap_or(token));
        rest = behind;
    }
    out
}

/// Integers of more digits fit nowhere.
const MAX_DIGITS: usize = 64;

/// Returns the integer that a number is, in digits; `None` where it has a fraction.
pub(super) fn whole_number(number: &str) -> Option<String> {
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
    // How many of the digits stand before the point.
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

/// Returns how long the string is that a text begins with.
fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn strings_are_left_alone() {
        let text = r#"{"5.0":["5.0","a\\\"5.0",5.0,-1e1,[2.5]],"é":7.0}"#;
        let whole = r#"{"5.0":["5.0","a\\\"5.0",5,-10,[2.5]],"é":7}"#;
        assert_eq!(with_whole_numbers(text), whole);
    }
}
