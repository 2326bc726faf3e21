use std::fmt;
use std::time::Duration;

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ended {
    /// What it exited with, where no signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it, where one did; 9 too where it was killed with all that it had started.
    pub signal: Option<i32>,
    /// The time of processors that it and what it waited for have used, as far as it is known.
    pub cpu: Duration,
}

impl Ended {
    pub(super) const fn new(code: Option<i32>, signal: Option<i32>, cpu: Duration) -> Self {
        Self { code, signal, cpu }
    }

    /// Did it exit with 0?
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.code == Some(0)
    }

    /// Did this signal end it, or something that a shell ran for it?
    #[cfg(target_os = "linux")]
    pub(super) fn is_by(&self, signal: i32) -> bool {
        self.signal == Some(signal) || self.code == Some(128 + signal)
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code, self.signal) {
            (Some(code), _) => write!(f, "exit status {code}"),
            (None, Some(signal)) => write!(f, "signal {signal}"),
            (None, None) => f.write_str("unknown end"),
        }
    }
}
