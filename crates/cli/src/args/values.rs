//! How values of the command line are read.

use std::time::Duration;

/// Reads how many to show.
pub(super) fn from_one() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..)
}

/// Parts a label into its key and its value.
pub(super) fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        None => Err("it is KEY=VALUE".to_owned()),
    }
}

/// Reads text that says something.
pub(super) fn not_blank(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("it must not be empty".to_owned()),
        _ => Ok(text.to_owned()),
    }
}

/// Reads an age such as `30d`.
pub(super) fn age(text: &str) -> Result<Duration, String> {
    let bad = || format!("`{text}` is no age; write a whole number and d, h, m or s, such as 30d");
    let (number, seconds) = match text.char_indices().last() {
        Some((at, 'd')) => (&text[..at], 24 * 60 * 60),
        Some((at, 'h')) => (&text[..at], 60 * 60),
        Some((at, 'm')) => (&text[..at], 60),
        Some((at, 's')) => (&text[..at], 1),
        _ => return Err(bad()),
    };
    let number: u64 = number.parse().map_err(|_| bad())?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(bad)
}
