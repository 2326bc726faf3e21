use std::fmt;

/// Reason that there are no walls on other systems.
#[cfg(not(target_os = "linux"))]
pub(crate) const NOT_HERE: &str = "walls are held by Linux, which this machine does not run";

/// A rule that is not enforced on this machine; with `best_effort` the program runs without it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotEnforced {
    /// The rule: `files`, `network`, `processes`, `memory`, `signals` or `system calls`.
    pub rule: &'static str,
    /// The missing mechanism, and the reason that it is missing.
    pub why: String,
}

impl NotEnforced {
    pub(crate) fn new(rule: &'static str, why: impl Into<String>) -> Self {
        Self { rule, why: why.into() }
    }
}

impl fmt::Display for NotEnforced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cannot be enforced: {}", self.rule, self.why)
    }
}
