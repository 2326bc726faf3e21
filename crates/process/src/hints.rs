//! Times that answers over HTTP ask a client to wait.

use std::time::{Duration, UNIX_EPOCH};

use http::HeaderMap;
use http::header::DATE;
use layer0::Timestamp;

/// Reads the retry delay that an endpoint asks for.
///
/// It is the first of `retry-after-ms`; `x-amz-retry-after`, in milliseconds too; `retry-after` as
/// seconds, then as a date; and the headers that LiteLLM passes on from the provider behind it.
/// Zero, negative and invalid numbers, NaN and numbers from 2^64 on are ignored. A number that can
/// only be a time since 1970 is read as a time. Times are relative to the response's own `date`
/// header, and to `now` without one.
#[must_use]
pub fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let now = answer_time(headers, now);
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let wait = |text: &str, unit| match text.parse().ok().and_then(read_epoch) {
        Some(at) => since(at, now),
        None => read_wait(text, unit),
    };
    let millis = |name: &str| wait(text(name)?, Duration::from_millis(1));
    let plain = |name: &str| {
        let text = text(name)?;
        let number = wait(text, Duration::from_secs(1)).or_else(|| read_seconds(text));
        number.or_else(|| since(date(text)?, now))
    };
    millis("retry-after-ms")
        .or_else(|| millis("x-amz-retry-after"))
        .or_else(|| plain("retry-after"))
        .or_else(|| millis("llm_provider-retry-after-ms"))
        .or_else(|| plain("llm_provider-retry-after"))
}

/// Reads a delay in the JSON form of a protobuf duration, `14s` or `0.5s`.
#[must_use]
pub fn read_seconds(text: &str) -> Option<Duration> {
    read_wait(text.trim().strip_suffix('s')?, Duration::from_secs(1))
}

/// Reads a number of units. Every numeric delay is read here.
fn read_wait(number: &str, unit: Duration) -> Option<Duration> {
    /// 2^64: larger numbers are not counts.
    const TOO_LARGE: f64 = 18_446_744_073_709_551_616.0;
    let wait = match number.parse::<u64>() {
        Ok(units) if unit.as_secs() > 0 => Duration::from_secs(units),
        Ok(units) => Duration::from_millis(units),
        Err(_) => {
            let units = number.parse::<f64>().ok().filter(|units| *units < TOO_LARGE)?;
            Duration::try_from_secs_f64(units * unit.as_secs_f64()).ok()?
        }
    };
    (!wait.is_zero()).then_some(wait)
}

/// Returns the time when the response was sent by the server's clock, to which its times refer;
/// `now` if it is unknown.
#[must_use]
pub fn answer_time(headers: &HeaderMap, now: Timestamp) -> Timestamp {
    let sent = headers.get(DATE).and_then(|sent| date(sent.to_str().ok()?.trim()));
    sent.unwrap_or(now)
}

/// Reads a number that can only be a time since 1970, in seconds or in milliseconds: as a delay it
/// would be decades.
#[must_use]
pub fn read_epoch(number: f64) -> Option<Timestamp> {
    let since_1970 = match number {
        1e9..1e10 => Duration::try_from_secs_f64(number),
        1e12..1e13 => Duration::try_from_secs_f64(number / 1e3),
        _ => return None,
    };
    Some(Timestamp::from_millis(i64::try_from(since_1970.ok()?.as_millis()).ok()?))
}

/// Reads a date in the format of HTTP, or with a time zone as in mail.
fn date(text: &str) -> Option<Timestamp> {
    let in_utc = ["-0000", "+0000", "UTC"].iter().find_map(|zone| text.strip_suffix(zone));
    let date = match in_utc {
        Some(date) => httpdate::parse_http_date(&format!("{date}GMT")),
        None => httpdate::parse_http_date(text),
    };
    let since_1970 = date.ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(Timestamp::from_millis(i64::try_from(since_1970.as_millis()).ok()?))
}

/// Returns the delay until a time; `None` if it has passed.
fn since(at: Timestamp, now: Timestamp) -> Option<Duration> {
    let wait = at.since(now);
    (!wait.is_zero()).then_some(wait)
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    /// Spec: R3
    #[test]
    fn hints_are_read_in_order() {
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
        check(&[("llm_provider-retry-after-ms", "1500")], Some(1_500));
        check(&[("llm_provider-retry-after", "7")], Some(7_000));
        check(&[("llm_provider-retry-after", "Thu, 01 Jan 2026 00:00:30 GMT")], Some(30_000));
        check(&[("llm_provider-retry-after", "9"), ("retry-after", "7")], Some(7_000));
        check(&[("retry-after", "Thu, 01 Jan 2026 00:00:30 GMT")], Some(30_000));
        check(&[("retry-after", "Wed, 31 Dec 2025 23:59:30 GMT")], None);
        check(&[("retry-after", "Thu, 01 Jan 1970 00:00:00 GMT")], None);
        check(&[("retry-after", "1s")], Some(1_000));
        check(&[("retry-after", "0.5s")], Some(500));
        for zone in ["GMT", "-0000", "+0000", "UTC"] {
            let date = format!("Thu, 01 Jan 2026 00:00:30 {zone}");
            check(&[("retry-after", &date)], Some(30_000));
        }
        check(&[("retry-after", "1767225630")], Some(30_000));
        check(&[("retry-after", "1764172800")], None);
        check(&[("retry-after-ms", "1767225630000")], Some(30_000));
        for date in ["Thu, 01 Jan 2026 00:10:00 GMT", "Wed, 31 Dec 2025 23:50:00 GMT"] {
            // By the clock of the endpoint; the clock of this machine is wrong.
            let wait = if date.contains("2026") { Some(30_000) } else { Some(1_230_000) };
            check(&[("date", date), ("retry-after", "Thu, 01 Jan 2026 00:10:30 GMT")], wait);
        }
        for garbage in ["0", "-3", "NaN", "inf", "1e300", "-0", "", "tomorrow", "6m0s"] {
            check(&[("retry-after", garbage)], None);
            check(&[("retry-after-ms", garbage)], None);
        }
    }

    /// Spec: R3
    #[test]
    fn numbers_beyond_64_bits_are_no_hint() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let read = |name: &'static str, value: &str| {
            let value = HeaderValue::from_str(value).unwrap();
            retry_after(&HeaderMap::from_iter([(HeaderName::from_static(name), value)]), now)
        };
        let names = ["retry-after", "retry-after-ms", "x-amz-retry-after"];
        let too_large =
            ["18446744073709551616", "18446744073709551616.0", "1.8446744073709552e19", "1e300"];
        for number in too_large.into_iter().chain(["99999999999999999999999999", "1e999", "inf"]) {
            for name in names {
                assert_eq!(read(name, number), None, "{name}: {number}");
            }
            assert_eq!(read_seconds(&format!("{number}s")), None, "{number}s");
        }
        let largest = "18446744073709551615";
        assert_eq!(read("retry-after", largest), Some(Duration::from_secs(u64::MAX)));
        assert_eq!(read("retry-after-ms", largest), Some(Duration::from_millis(u64::MAX)));
        assert_eq!(read_seconds(&format!("{largest}s")), Some(Duration::from_secs(u64::MAX)));
    }

    /// Spec: R3
    #[test]
    fn duration_in_a_body_is_a_hint() {
        assert_eq!(read_seconds("14s"), Some(Duration::from_secs(14)));
        assert_eq!(read_seconds("0.25s"), Some(Duration::from_millis(250)));
        for garbage in ["", "s", "14", "0s", "-1s", "NaNs", "1e300s", "14m", "sss", "14ms"] {
            assert_eq!(read_seconds(garbage), None, "{garbage}");
        }
    }
}
