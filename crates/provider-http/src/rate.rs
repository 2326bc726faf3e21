//! What an endpoint says is left of its limits.

use std::time::Duration;

use layer0::Timestamp;
use layer0::usage::RateLevel;
use reqwest::header::HeaderMap;

/// The headers of limits of requests: limit, remaining, reset.
const REQUESTS: [[&str; 3]; 2] = [
    ["x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"],
    [
        "anthropic-ratelimit-requests-limit",
        "anthropic-ratelimit-requests-remaining",
        "anthropic-ratelimit-requests-reset",
    ],
];
/// Those of limits of tokens. Where Anthropic has several, the first says the one that is nearest.
const TOKENS: [[&str; 3]; 3] = [
    ["x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"],
    [
        "anthropic-ratelimit-tokens-limit",
        "anthropic-ratelimit-tokens-remaining",
        "anthropic-ratelimit-tokens-reset",
    ],
    [
        "anthropic-ratelimit-input-tokens-limit",
        "anthropic-ratelimit-input-tokens-remaining",
        "anthropic-ratelimit-input-tokens-reset",
    ],
];

/// Reads what is left of requests and of tokens.
pub(crate) fn levels(headers: &HeaderMap, now: Timestamp) -> [Option<RateLevel>; 2] {
    let first = |names: &[[&str; 3]]| names.iter().find_map(|names| level(headers, *names, now));
    [first(&REQUESTS), first(&TOKENS)]
}

fn level(headers: &HeaderMap, names: [&str; 3], now: Timestamp) -> Option<RateLevel> {
    let [limit, remaining, reset] =
        names.map(|name| headers.get(name)?.to_str().ok().map(str::trim));
    let count = |text: Option<&str>| text?.parse::<u64>().ok();
    let full_in = reset.and_then(|text| span(text).or_else(|| until(text, now)));
    Some(RateLevel::new(count(remaining)?).of(count(limit)).full_in(full_in))
}

fn until(time: &str, now: Timestamp) -> Option<Duration> {
    Some(time.parse::<Timestamp>().ok()?.since(now))
}

/// Reads a span such as `6m0s`, `1.5s` or `20ms`; a number alone is seconds.
fn span(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let is_number = |sign: char| sign.is_ascii_digit() || sign == '.';
        let (number, after) =
            rest.split_at(rest.find(|sign| !is_number(sign)).unwrap_or(rest.len()));
        let (unit, after) = after.split_at(after.find(is_number).unwrap_or(after.len()));
        let unit = match unit {
            "h" => 3_600.0,
            "m" => 60.0,
            "s" | "" => 1.0,
            "ms" => 0.001,
            _ => return None,
        };
        seconds += number.parse::<f64>().ok()? * unit;
        rest = after;
    }
    (!text.is_empty()).then(|| Duration::try_from_secs_f64(seconds).ok())?
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderName, HeaderValue};

    use super::*;

    fn read(headers: &[(&'static str, &str)]) -> [Option<RateLevel>; 2] {
        let header = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        let headers: HeaderMap = headers.iter().map(header).collect();
        levels(&headers, "2026-01-01T00:00:00Z".parse().unwrap())
    }

    fn seconds(seconds: f64) -> Option<Duration> {
        Some(Duration::from_secs_f64(seconds))
    }

    #[test]
    fn headers_of_openai_are_read() {
        let [requests, tokens] = read(&[
            ("x-ratelimit-limit-requests", "500"),
            ("x-ratelimit-remaining-requests", "499"),
            ("x-ratelimit-reset-requests", "120ms"),
            ("x-ratelimit-limit-tokens", "30000"),
            ("x-ratelimit-remaining-tokens", "12"),
            ("x-ratelimit-reset-tokens", "6m0.5s"),
        ]);
        assert_eq!(requests, Some(RateLevel::new(499).of(Some(500)).full_in(seconds(0.12))));
        assert_eq!(tokens, Some(RateLevel::new(12).of(Some(30_000)).full_in(seconds(360.5))));
    }

    #[test]
    fn headers_of_anthropic_are_read() {
        let [requests, tokens] = read(&[
            ("anthropic-ratelimit-requests-limit", "50"),
            ("anthropic-ratelimit-requests-remaining", "0"),
            ("anthropic-ratelimit-requests-reset", "2026-01-01T00:00:30Z"),
            ("anthropic-ratelimit-input-tokens-limit", "40000"),
            ("anthropic-ratelimit-input-tokens-remaining", "1000"),
            ("anthropic-ratelimit-input-tokens-reset", "2025-12-31T00:00:00Z"),
        ]);
        assert_eq!(requests, Some(RateLevel::new(0).of(Some(50)).full_in(seconds(30.0))));
        let past = RateLevel::new(1_000).of(Some(40_000)).full_in(Some(Duration::ZERO));
        assert_eq!(tokens, Some(past));
    }

    #[test]
    fn garbage_says_nothing() {
        assert_eq!(read(&[]), [None, None]);
        for garbage in ["", "-1", "many", "1.5", "99999999999999999999"] {
            assert_eq!(read(&[("x-ratelimit-remaining-requests", garbage)]), [None, None]);
        }
        for garbage in ["", "soon", "1x", "1..5s", "s", "-3s", "1e9s"] {
            let [requests, _] = read(&[
                ("x-ratelimit-remaining-requests", "3"),
                ("x-ratelimit-reset-requests", garbage),
            ]);
            assert_eq!(requests, Some(RateLevel::new(3)), "{garbage}");
        }
    }
}
