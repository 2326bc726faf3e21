//! Spans of time, as headers and messages write them.

use std::time::Duration;

/// Phrases in front of a retry delay in a message.
const LEADS: [&str; 6] = ["try again", "retry", "wait", "available again", "resets in", "reset in"];
/// The most words between such a phrase and the span.
const MAX_GAP: usize = 5;
/// The most words of a span: `1 hour, 2 minutes and 30 seconds`.
const MAX_PARTS: usize = 7;
/// The most bytes of a message that are searched.
const MAX_SEARCHED: usize = 4_096;
/// The longest delay that is read from a message: a longer one is no rate limit.
const MAX_IN_WORDS: Duration = Duration::from_secs(24 * 60 * 60);

/// Reads a span such as `6m0s`, `1.5s` or `20ms`; a number alone is seconds.
pub(crate) fn read_span(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let is_number = |sign: char| sign.is_ascii_digit() || sign == '.';
        let (number, after) =
            rest.split_at(rest.find(|sign| !is_number(sign)).unwrap_or(rest.len()));
        let (unit, after) = after.split_at(after.find(is_number).unwrap_or(after.len()));
        let unit = match unit {
            "" => 1.0,
            unit => short_unit(unit)?,
        };
        seconds += number.parse::<f64>().ok()? * unit;
        rest = after;
    }
    (!text.is_empty()).then(|| Duration::try_from_secs_f64(seconds).ok())?
}

/// Reads the retry delay in a message: `Please try again in 1m30s`, `retry after 26 seconds`. It is
/// used if no header has one. Numbers without a unit and delays longer than a day are ignored.
pub(crate) fn wait_in_words(message: &str) -> Option<Duration> {
    let end = message.floor_char_boundary(MAX_SEARCHED);
    let text = message[..end].to_ascii_lowercase();
    let wait = LEADS.iter().find_map(|lead| {
        let mut found = text.match_indices(lead).map(|(at, _)| &text[at + lead.len()..]);
        found.find_map(span_after)
    })?;
    (!wait.is_zero() && wait <= MAX_IN_WORDS).then_some(wait)
}

/// Reads the first span within a few words of the same sentence.
fn span_after(text: &str) -> Option<Duration> {
    let words: Vec<&str> = text.split_whitespace().take(MAX_GAP + MAX_PARTS).collect();
    for (place, word) in words.iter().enumerate().take(MAX_GAP) {
        if let Some(wait) = span_of_words(&words[place..]) {
            return Some(wait);
        }
        if word.ends_with(['.', '!', '?', ';']) {
            return None;
        }
    }
    None
}

/// Reads the span at the start of these words.
fn span_of_words(words: &[&str]) -> Option<Duration> {
    let trim =
        |word: &str| word.trim_matches(|sign: char| !sign.is_ascii_alphanumeric()).to_owned();
    let mut words = words.iter().map(|word| (trim(word), word.ends_with(['.', ';']))).peekable();
    let mut total: Option<Duration> = None;
    while let Some((word, is_end)) = words.next() {
        if total.is_some() && word == "and" && !is_end {
            continue;
        }
        let joined = word.parse::<f64>().is_err().then(|| read_units(&word)).flatten();
        let (part, is_end) = match joined {
            Some(part) => (part, is_end),
            None => {
                let Ok(number) = word.parse::<f64>() else { break };
                let Some((unit, is_end)) = words.next_if(|(unit, _)| unit_seconds(unit).is_some())
                else {
                    break;
                };
                let seconds = number * unit_seconds(&unit)?;
                (Duration::try_from_secs_f64(seconds).ok()?, is_end)
            }
        };
        total = Some(total.unwrap_or_default().saturating_add(part));
        if is_end {
            break;
        }
    }
    total
}

/// Reads `1m30s`, each number with its unit.
fn read_units(word: &str) -> Option<Duration> {
    let begins = word.starts_with(|sign: char| sign.is_ascii_digit());
    let ends = word.ends_with(|sign: char| sign.is_ascii_alphabetic());
    (begins && ends).then(|| read_span(word)).flatten()
}

/// Returns the seconds of a unit that is written short.
fn short_unit(unit: &str) -> Option<f64> {
    match unit {
        "d" => Some(86_400.0),
        "h" => Some(3_600.0),
        "m" => Some(60.0),
        "s" => Some(1.0),
        "ms" => Some(0.001),
        _ => None,
    }
}

/// Returns the seconds of a unit, short or as a word.
fn unit_seconds(unit: &str) -> Option<f64> {
    match unit {
        "day" | "days" => Some(86_400.0),
        "hour" | "hours" | "hr" | "hrs" => Some(3_600.0),
        "minute" | "minutes" | "min" | "mins" => Some(60.0),
        "second" | "seconds" | "sec" | "secs" => Some(1.0),
        "millisecond" | "milliseconds" | "msec" | "msecs" => Some(0.001),
        short => short_unit(short),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: R3
    #[test]
    fn wait_in_words_is_read() {
        for (message, wait_ms) in [
            ("Limit 30000, Used 22999, Requested 12528. Please try again in 1.5s. Visit x.", 1_500),
            ("Rate limit reached for gpt-5. Please try again in 11s.", 11_000),
            ("Please try again in 528ms. Visit https://example.com", 528),
            ("Please try again in 1m30s", 90_000),
            ("try again in 6m0s", 360_000),
            ("Please try again in 7m12.5s. Need more tokens?", 432_500),
            ("Please try again in 1h2m3s.", 3_723_000),
            ("Please retry after 26 seconds. To increase your limit, go to x", 26_000),
            ("You can retry your request after 3 seconds", 3_000),
            ("Please retry in 14.388s.", 14_388),
            ("Please wait 30 seconds and try again", 30_000),
            ("Too many requests, wait for about 2 minutes.", 120_000),
            ("Try again in 1 minute and 30 seconds", 90_000),
            ("Try again in 1 minute, 30 seconds.", 90_000),
            ("retry after 500 milliseconds", 500),
            ("The limit resets in 20 sec", 20_000),
            ("PLEASE TRY AGAIN AFTER (12s)", 12_000),
            ("You may retry 3 more times, in 20 seconds", 20_000),
        ] {
            assert_eq!(wait_in_words(message), Some(Duration::from_millis(wait_ms)), "{message}");
        }
    }

    /// Spec: R3
    #[test]
    fn message_without_a_wait_is_no_hint() {
        for message in [
            "",
            "Please try again later",
            "Limit 30000 tokens per minute, used 29000 in 60s",
            "Please retry. The limit is 20 seconds of audio",
            "try again in 0s",
            "try again in 2 days",
            "try again in 99999999999999999999999999999 days",
            "try again in 1e999 s",
            "try again in 5",
            "retry 3 times with fewer than one two three four 20 seconds",
            "try again in é",
        ] {
            assert_eq!(wait_in_words(message), None, "{message}");
        }
        assert_eq!(wait_in_words(&"retry é 1 ".repeat(99_999)), None);
    }

    proptest::proptest! {
        #[test]
        fn any_message_is_searched_without_a_panic(
            message in "(try again|retry|wait|in|after| |[0-9.]{1,9}|[smhd]{1,2}|seconds|é|\\PC){0,24}",
        ) {
            let wait = wait_in_words(&message);
            proptest::prop_assert!(wait.is_none_or(|wait| !wait.is_zero() && wait <= MAX_IN_WORDS));
        }
    }
}
