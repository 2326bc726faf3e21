use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The timeouts of a model call, by phase.
///
/// In files: `{ connect_ms, first_byte_ms, idle_ms, attempt_ms }`, each optional, none zero.
///
/// ```
/// use std::time::Duration;
/// use backstop_provider_http::Timeouts;
///
/// let timeouts = Timeouts::new().idle(Duration::from_secs(5));
/// assert_eq!(timeouts.attempt, Duration::from_secs(300));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Timeouts {
    /// Connecting, TLS included. 10 s by default.
    #[serde(rename = "connect_ms", with = "ms")]
    pub connect: Duration,
    /// From sending the request to the head of the response, including a connection if one was
    /// made. A provider that does not stream sends it when the whole answer is ready. 60 s by
    /// default.
    #[serde(rename = "first_byte_ms", with = "ms")]
    pub first_byte: Duration,
    /// Between two chunks of the answer. 60 s by default.
    #[serde(rename = "idle_ms", with = "ms")]
    pub idle: Duration,
    /// The attempt as a whole. Held here, applied by the layer around the provider. 300 s by default.
    #[serde(rename = "attempt_ms", with = "ms")]
    pub attempt: Duration,
}

impl Timeouts {
    /// Returns the default timeouts.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets all timeouts to this limit.
    #[must_use]
    pub const fn all(limit: Duration) -> Self {
        Self { connect: limit, first_byte: limit, idle: limit, attempt: limit }
    }

    /// Limits connecting.
    #[must_use]
    pub const fn connect(mut self, limit: Duration) -> Self {
        self.connect = limit;
        self
    }

    /// Limits the time to the head of the response.
    #[must_use]
    pub const fn first_byte(mut self, limit: Duration) -> Self {
        self.first_byte = limit;
        self
    }

    /// Limits the time between two chunks of the answer.
    #[must_use]
    pub const fn idle(mut self, limit: Duration) -> Self {
        self.idle = limit;
        self
    }

    /// Limits the attempt as a whole.
    #[must_use]
    pub const fn attempt(mut self, limit: Duration) -> Self {
        self.attempt = limit;
        self
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first_byte: Duration::from_secs(60),
            idle: Duration::from_secs(60),
            attempt: Duration::from_secs(300),
        }
    }
}

mod ms {
    use std::num::NonZeroU64;
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(wait: &Duration, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_u64(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Duration, D::Error> {
        NonZeroU64::deserialize(input).map(|ms| Duration::from_millis(ms.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_leaves_out_keeps_its_default() {
        let read: Timeouts = toml::from_str("idle_ms = 5000").unwrap();
        assert_eq!(read, Timeouts { idle: Duration::from_secs(5), ..Timeouts::default() });
        let json = serde_json::to_value(Timeouts::default()).unwrap();
        assert_eq!(json["attempt_ms"], 300_000);
    }

    #[test]
    fn an_unknown_or_zero_phase_is_refused() {
        assert!(toml::from_str::<Timeouts>("idle = 5").is_err());
        assert!(toml::from_str::<Timeouts>("idle_ms = 0").is_err());
    }
}
