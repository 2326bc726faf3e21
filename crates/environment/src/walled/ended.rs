use std::fmt;
use std::time::Duration;

/// The end of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProgramExit {
    /// The exit code, if no signal ended the program.
    pub code: Option<i32>,
    /// The signal that ended the program, if any; 9 also if it was killed together with its processes.
    pub signal: Option<i32>,
    /// The processor time of the program and of the processes that it waited for, as far as it is known.
    pub cpu: Duration,
}

impl ProgramExit {
    pub(super) const fn new(code: Option<i32>, signal: Option<i32>, cpu: Duration) -> Self {
        Self { code, signal, cpu }
    }

    /// Returns whether the exit code is 0.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.code == Some(0)
    }

    /// Returns whether the end looks like one by this signal, of the program or of a process that a shell ran for it.
    #[cfg(target_os = "linux")]
    pub(super) fn looks_like(&self, signal: i32) -> bool {
        self.signal == Some(signal) || self.code == Some(128 + signal)
    }
}

impl fmt::Display for ProgramExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code, self.signal) {
            (Some(code), _) => write!(f, "exit status {code}"),
            (None, Some(signal)) => write!(f, "signal {signal}"),
            (None, None) => f.write_str("unknown end"),
        }
    }
}
