use std::time::{Duration, UNIX_EPOCH};

use layer0::Timestamp;
use reqwest::header::HeaderMap;

/// Reads how long the provider asks to wait: `retry-after-ms`, then `x-amz-retry-after`, which is in
/// milliseconds too, then `retry-after` as seconds, then as an HTTP date. Zero, negative, NaN and garbage are no hint.
pub(crate) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let millis = |name: &str| positive(text(name)?.parse::<f64>().ok()? / 1_000.0);
    millis("retry-after-ms")
        .or_else(|| millis("x-amz-retry-after"))
        .or_else(|| text("retry-after").and_then(|seconds| positive(seconds.parse().ok()?)))
        .or_else(|| text("retry-after").and_then(|date| until(date, now)))
}

/// Reads a wait as the JSON of a protobuf duration, `14s` or `0.5s`.
pub(crate) fn seconds(text: &str) -> Option<Duration> {
    positive(text.trim().strip_suffix('s')?.parse().ok()?)
}

fn positive(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok().filter(|wait| !wait.is_zero())
}

fn until(date: &str, now: Timestamp) -> Option<Duration> {
    let at = httpdate::parse_http_date(date).ok()?.duration_since(UNIX_EPOCH).ok()?;
    let wait = Timestamp::from_millis(i64::try_from(at.as_millis()).ok()?).since(now);
    (!wait.is_zero()).then_some(wait)
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderName, HeaderValue};

    use super::*;

    /// Spec: R3
    #[test]
    fn hints_are_read_in_order_and_garbage_is_no_hint() {
        #[track_caller]
        fn check(headers: &[(&'static str, &str)], expected_ms: Option<u64>) {
            let headers: HeaderMap = headers
                .iter()
                .map(|(name, value)| {
                    (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
                })
                .collect();
            let now = "2026-01-01T00:00:00Z".parse().unwrap();
            let hint = retry_after(&headers, now);
            assert_eq!(hint, expected_ms.map(Duration::from_millis), "{headers:?}");
        }
        check(&[], None);
        check(&[("retry-after", "7")], Some(7_000));
        check(&[("retry-after", " 0.25 ")], Some(250));
        check(&[("retry-after-ms", "1500"), ("retry-after", "7")], Some(1_500));
        check(&[("retry-after-ms", "soon"), ("retry-after", "7")], Some(7_000));
        check(&[("retry-after-ms", "0"), ("retry-after", "7")], Some(7_000));
        check(&[("x-amz-retry-after", "1500"), ("retry-after", "7")], Some(1_500));
        check(&[("x-amz-retry-after", "-1"), ("retry-after", "7")], Some(7_000));
        check(&[("retry-after", "Thu, 01 Jan 2026 00:00:30 GMT")], Some(30_000));
        check(&[("retry-after", "Wed, 31 Dec 2025 23:59:30 GMT")], None);
        check(&[("retry-after", "Thu, 01 Jan 1970 00:00:00 GMT")], None);
        for garbage in ["0", "-3", "NaN", "inf", "1e300", "-0", "", "tomorrow", "6m0s"] {
            check(&[("retry-after", garbage)], None);
            check(&[("retry-after-ms", garbage)], None);
        }
    }

    /// Spec: R3
    #[test]
    fn a_duration_in_a_body_is_read_and_garbage_is_no_hint() {
        assert_eq!(seconds("14s"), Some(Duration::from_secs(14)));
        assert_eq!(seconds("0.25s"), Some(Duration::from_millis(250)));
        for garbage in ["", "s", "14", "0s", "-1s", "NaNs", "1e300s", "14m", "sss", "14ms"] {
            assert_eq!(seconds(garbage), None, "{garbage}");
        }
    }
}
