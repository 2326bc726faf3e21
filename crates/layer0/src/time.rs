//! Timestamps of events.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::code;
use crate::failure::{Effect, Facts, Failure};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A point in time, in milliseconds since 1970-01-01T00:00:00Z.
///
/// Formats and parses RFC 3339 with milliseconds, in UTC.
///
/// ```
/// use layer0::Timestamp;
///
/// let start: Timestamp = "2026-01-01T00:00:00.000Z".parse()?;
/// assert_eq!(start.to_string(), "2026-01-01T00:00:00.000Z");
/// # Ok::<(), layer0::time::ParseTimestampError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Creates a timestamp from milliseconds since 1970-01-01T00:00:00Z, clamped to the range of RFC 3339 (years -9999
    /// to 9999).
    #[must_use]
    pub fn from_millis(ms: i64) -> Self {
        // jiff supports milliseconds only up to the last whole second of its range.
        let [first, last] =
            [jiff::Timestamp::MIN, jiff::Timestamp::MAX].map(|at| at.as_second() * 1_000);
        Self(ms.clamp(first, last))
    }

    /// Returns the milliseconds since 1970-01-01T00:00:00Z.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Returns the time since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Returns the timestamp `wait` later.
    #[must_use]
    pub fn after(self, wait: Duration) -> Self {
        Self::from_millis(
            self.0.saturating_add(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX)),
        )
    }

    /// Returns the start of its day in UTC.
    #[must_use]
    pub fn start_of_day(self) -> Self {
        const DAY: i64 = 24 * 60 * 60 * 1_000;
        Self::from_millis(self.0.div_euclid(DAY).saturating_mul(DAY))
    }

    /// Returns its day in UTC as `YYYY-MM-DD`.
    #[must_use]
    pub fn date(self) -> String {
        self.civil().strftime("%Y-%m-%d").to_string()
    }

    fn civil(self) -> jiff::Timestamp {
        // `from_millis` ensures the range, so the fallback is never used.
        jiff::Timestamp::from_millisecond(self.0).unwrap_or_default()
    }

    /// Returns the timestamp as `YYYYMMDD_HHMMSS` in UTC, as used in ids of stored items.
    #[must_use]
    pub fn compact(self) -> String {
        self.civil().strftime("%Y%m%d_%H%M%S").to_string()
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", self.civil())
    }
}

/// Error of a text that is not an RFC 3339 timestamp.
///
/// Retry: never. Effect: none.
#[derive(Debug, thiserror::Error)]
#[error("not an RFC 3339 timestamp: `{0}`")]
pub struct ParseTimestampError(String);

impl Failure for ParseTimestampError {
    fn facts(&self) -> Facts {
        Facts::never(code::INPUT_INVALID, Effect::None)
    }
}

impl FromStr for Timestamp {
    type Err = ParseTimestampError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || ParseTimestampError(text.to_owned());
        if offset_hours(text).is_some_and(|hours| hours > MAX_OFFSET_HOURS) {
            return Err(refused());
        }
        let at = text.parse::<jiff::Timestamp>().map_err(|_| refused())?;
        Ok(Self::from_millis(at.as_millisecond()))
    }
}

/// Maximum hours of an offset: RFC 3339, `time-hour`.
const MAX_OFFSET_HOURS: u8 = 23;

/// Returns the hours of the offset from UTC, if the text has one.
fn offset_hours(text: &str) -> Option<u8> {
    let (_, time) = text.split_once(['T', 't', ' '])?;
    let (_, offset) = time.split_once(['+', '-'])?;
    offset.get(..2)?.parse().ok()
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}
