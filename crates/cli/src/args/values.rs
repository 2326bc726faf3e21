//! Parsers of values on the command line.

use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::is_harmful;
use backstop_react::LabelError;
use layer0::name::{check_name, check_session};
use layer0::usage::BudgetIncrease;
use layer0::{Code, JsonText, Timestamp, code};

use crate::names::nearest;

/// A range of start times.
#[derive(clap::Args)]
pub(crate) struct TimeArgs {
    /// Select only entries that began at this moment or later: RFC 3339, a day such as 2026-01-31 (UTC), or an age such
    /// as 2h, 3d or 2w
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(crate) since: Option<Timestamp>,
    /// Select only entries that began before this moment, in the same formats
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(crate) until: Option<Timestamp>,
}

/// Parses a moment.
pub(super) fn moment(text: &str) -> Result<Timestamp, String> {
    let whole_day = || format!("{text}T00:00:00Z").parse().ok();
    let ago = || {
        let ago = i64::try_from(age(text).ok()?.as_millis()).ok()?;
        Some(Timestamp::from_millis(SystemClock.now().as_millis().saturating_sub(ago)))
    };
    text.parse().ok().or_else(whole_day).or_else(ago).ok_or_else(|| {
        format!(
            "`{text}` is no moment; write RFC 3339 such as 2026-01-31T08:00:00Z, a day such as \
             2026-01-31, or how long ago, such as 2h, 3d or 2w"
        )
    })
}

/// Parses a future moment.
pub(super) fn from_now(text: &str) -> Result<Timestamp, String> {
    let whole_day = || format!("{text}T00:00:00Z").parse().ok();
    let later = || {
        let (now, age) = (SystemClock.now(), age(text).ok()?);
        let later = now.after(age);
        // A duration that does not fit before the last representable moment is refused, because the result would
        // differ.
        (later.since(now) == age).then_some(later)
    };
    text.parse().ok().or_else(whole_day).or_else(later).ok_or_else(|| {
        format!(
            "`{text}` is no moment; write RFC 3339 such as 2026-01-31T08:00:00Z, a day such as \
             2026-01-31, or how long from now, such as 2h, 3d or 2w"
        )
    })
}

/// Splits a queue into its name and its limit.
pub(super) fn queue_limit(text: &str) -> Result<(String, Option<usize>), String> {
    let (name, limit) = match text.split_once('=') {
        Some((name, limit)) => {
            let limit = limit.parse().ok().filter(|limit| *limit > 0);
            (name, Some(limit.ok_or("write NAME=LIMIT with a number from 1 on, such as mail=10")?))
        }
        None => (text, None),
    };
    Ok((queue(name)?, limit))
}

/// Parses the name of a queue. Characters that are invisible or change the direction of writing are refused, because
/// the name would look like another one.
pub(super) fn queue(text: &str) -> Result<String, String> {
    check_name(text).map_err(|error| error.to_string())?;
    match text.chars().find(|c| is_harmful(*c)) {
        Some(c) => {
            Err(format!("it holds {}, which is invisible or turns the line", c.escape_unicode()))
        }
        None => session(text),
    }
}

/// Returns the parser of a limit of at least 1.
pub(super) fn from_one() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..)
}

/// Parses the name of a session.
pub(super) fn session(text: &str) -> Result<String, String> {
    check_session(text).map_err(|error| format!("it {}", error.why))?;
    Ok(text.to_owned())
}

/// Splits a label into its key and its value.
pub(super) fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE, such as ticket=4711")?;
    LabelError::check(key, value).map_err(|error| error.to_string())?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Parses a code, or a family of codes such as `tool.*`. A code in one of our families must be in the catalogue; a run
/// may fail with a code of another family, which its operator defines.
pub(super) fn code(text: &str) -> Result<String, String> {
    let (family, _) = text.split_once('.').unwrap_or((text, ""));
    let is_ours = |entry: &code::CodeEntry| entry.code.split('.').next() == Some(family);
    match family.is_empty() || code::CATALOGUE.iter().any(is_ours) || !text.contains('.') {
        true => known_code(text),
        false => Ok(text.to_owned()),
    }
}

/// Parses a code of the catalogue, or a family of such codes.
pub(super) fn known_code(text: &str) -> Result<String, String> {
    if code::CATALOGUE.iter().any(|entry| Code::new(entry.code).matches(text)) {
        return Ok(text.to_owned());
    }
    if text.ends_with('*') {
        return Err("no code begins so; `backstop codes` lists them".to_owned());
    }
    let known: Vec<&str> = code::CATALOGUE.iter().map(|entry| entry.code).collect();
    Err(match nearest(text, &known) {
        Some(near) => format!("there is no such code; did you mean `{near}`?"),
        None => "there is no such code; `backstop codes` lists them".to_owned(),
    })
}

/// Parses the increase of a budget.
pub(super) fn increase(text: &str) -> Result<BudgetIncrease, String> {
    let how = "write KEY=+N, such as max_model_calls=+20";
    let (key, amount) = text.split_once("=+").ok_or(how)?;
    let amount: serde_json::Number = amount.parse().map_err(|_| how)?;
    if amount.as_f64().is_none_or(|amount| amount <= 0.0) {
        return Err("what is added is more than nothing".to_owned());
    }
    let more = serde_json::json!({ key: amount });
    serde_json::from_value(more).map_err(|error| error.to_string().replace("field", "budget"))
}

/// Parses any JSON.
pub(super) fn json(text: &str) -> Result<JsonText, String> {
    JsonText::parse(text).map_err(|error| format!("it is no JSON: {error}"))
}

/// Parses the arguments of a call.
pub(super) fn arguments(text: &str) -> Result<JsonText, String> {
    let arguments = json(text)?;
    match arguments.get().starts_with('{') {
        true => Ok(arguments),
        false => Err("arguments are a JSON object".to_owned()),
    }
}

/// Parses a text that is not blank.
pub(super) fn not_blank(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("it must not be empty".to_owned()),
        _ => Ok(text.to_owned()),
    }
}

/// Parses an age such as `30d`.
pub(super) fn age(text: &str) -> Result<Duration, String> {
    let bad =
        || format!("`{text}` is no age; write a whole number and w, d, h, m or s, such as 30d");
    let (number, seconds) = match text.char_indices().last() {
        Some((at, 'w')) => (&text[..at], 7 * 24 * 60 * 60),
        Some((at, 'd')) => (&text[..at], 24 * 60 * 60),
        Some((at, 'h')) => (&text[..at], 60 * 60),
        Some((at, 'm')) => (&text[..at], 60),
        Some((at, 's')) => (&text[..at], 1),
        _ => return Err(bad()),
    };
    let number: u64 = number.parse().map_err(|_| bad())?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: C2
    #[test]
    fn ages_are_read_in_each_unit() {
        let seconds = |text: &str| age(text).map(|age| age.as_secs());
        for (text, expected) in [("2w", 1_209_600), ("3d", 259_200), ("2h", 7_200), ("90m", 5_400)]
        {
            assert_eq!(seconds(text), Ok(expected), "{text}");
            assert!(moment(text).is_ok() && from_now(text).is_ok(), "{text}");
        }
        for text in ["2", "w", "2y", "-2w", "1.5w", "9999999999999999999w"] {
            age(text).unwrap_err();
        }
    }

    /// Spec: J2w
    #[test]
    fn unprintable_moments_are_refused() {
        for text in ["99999999999d", "4000000d"] {
            from_now(text).unwrap_err();
        }
        assert!(from_now("2h").is_ok() && from_now("2026-01-31").is_ok());
    }

    /// Spec: J2w
    #[test]
    fn queues_look_like_no_other() {
        for name in ["\u{202e}gnp", "a\u{200b}", "", " "] {
            queue(name).unwrap_err();
            queue_limit(&format!("{name}=3")).unwrap_err();
        }
        assert_eq!(queue("mail").unwrap(), "mail");
        assert_eq!(queue_limit("mail=3").unwrap(), ("mail".to_owned(), Some(3)));
    }
}
