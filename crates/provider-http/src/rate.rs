//! Rate limits that an endpoint reports.

use std::time::Duration;

use backstop_process::hints::{answer_time, read_epoch};
use layer0::Timestamp;
use layer0::usage::RateLevel;
use reqwest::header::HeaderMap;

use crate::span::read_span;

/// The headers of request limits: limit, remaining, reset.
const REQUESTS: [[&str; 3]; 2] = [
    ["x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"],
    [
        "anthropic-ratelimit-requests-limit",
        "anthropic-ratelimit-requests-remaining",
        "anthropic-ratelimit-requests-reset",
    ],
];
/// The headers of token limits. Of several at Anthropic, the first has the nearest limit.
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

/// The longest time until a limit is full again; longer ones are ignored.
const MAX_RESET: Duration = Duration::from_secs(24 * 60 * 60);

/// Reads the remaining requests and tokens. Times are relative to the response's own `Date`.
pub(crate) fn levels(headers: &HeaderMap, now: Timestamp) -> [Option<RateLevel>; 2] {
    let now = answer_time(headers, now);
    let first = |names: &[[&str; 3]]| names.iter().find_map(|names| level(headers, *names, now));
    [first(&REQUESTS), first(&TOKENS)]
}

fn level(headers: &HeaderMap, names: [&str; 3], now: Timestamp) -> Option<RateLevel> {
    let [limit, remaining, reset] =
        names.map(|name| headers.get(name)?.to_str().ok().map(str::trim));
    let count = |text: Option<&str>| text?.parse::<u64>().ok();
    // Without a readable time, a limit would keep requests away for as long as it takes to fill by itself.
    let full_in = match reset {
        Some(text) => Some(reset_in(text, now)?).filter(|time| *time <= MAX_RESET),
        None => None,
    };
    Some(RateLevel::new(count(remaining)?).with_limit(count(limit)).full_in(full_in))
}

/// Reads a reset: a span, a time, or a number of seconds, which some endpoints count from 1970.
fn reset_in(text: &str, now: Timestamp) -> Option<Duration> {
    if let Some(at) = text.parse().ok().and_then(read_epoch) {
        return Some(at.since(now));
    }
    let time = || text.parse::<Timestamp>().ok();
    read_span(text).or_else(|| Some(time()?.since(now)))
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
        assert_eq!(
            requests,
            Some(RateLevel::new(499).with_limit(Some(500)).full_in(seconds(0.12)))
        );
        assert_eq!(
            tokens,
            Some(RateLevel::new(12).with_limit(Some(30_000)).full_in(seconds(360.5)))
        );
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
        assert_eq!(requests, Some(RateLevel::new(0).with_limit(Some(50)).full_in(seconds(30.0))));
        let past = RateLevel::new(1_000).with_limit(Some(40_000)).full_in(Some(Duration::ZERO));
        assert_eq!(tokens, Some(past));
    }

    /// Spec: R7
    #[test]
    fn epoch_reset_is_a_time_of_day() {
        for (reset, full_in) in [
            ("1767225630", Some(30.0)),
            ("1767225630.5", Some(30.5)),
            ("1767225630000", Some(30.0)),
            ("1764172800", Some(0.0)),
            ("1798761600", None),
            ("90000", None),
            ("86400", Some(86_400.0)),
            ("2027-01-01T00:00:00Z", None),
        ] {
            let [requests, _] = read(&[
                ("x-ratelimit-remaining-requests", "0"),
                ("x-ratelimit-reset-requests", reset),
            ]);
            let full_in = full_in.map(Duration::from_secs_f64);
            assert_eq!(requests, Some(RateLevel::new(0).full_in(full_in)), "{reset}");
        }
    }

    /// Spec: R7. The clock of this machine is an hour behind.
    #[test]
    fn reset_counts_from_the_date_of_answer() {
        let [requests, _] = read(&[
            ("date", "Thu, 01 Jan 2026 01:00:00 GMT"),
            ("anthropic-ratelimit-requests-limit", "50"),
            ("anthropic-ratelimit-requests-remaining", "0"),
            ("anthropic-ratelimit-requests-reset", "2026-01-01T01:00:30Z"),
        ]);
        assert_eq!(requests, Some(RateLevel::new(0).with_limit(Some(50)).full_in(seconds(30.0))));
    }

    #[test]
    fn garbage_says_nothing() {
        assert_eq!(read(&[]), [None, None]);
        for garbage in ["", "-1", "many", "1.5", "99999999999999999999"] {
            assert_eq!(read(&[("x-ratelimit-remaining-requests", garbage)]), [None, None]);
        }
        for garbage in ["", "soon", "1x", "1..5s", "s", "-3s", "1e9s", "PT30S"] {
            let [requests, _] = read(&[
                ("x-ratelimit-limit-requests", "1"),
                ("x-ratelimit-remaining-requests", "0"),
                ("x-ratelimit-reset-requests", garbage),
            ]);
            assert_eq!(requests, None, "{garbage}");
        }
    }
}
