use std::fmt;

/// A mechanism of the kernel that enforces a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Mechanism {
    /// Restricts files, and the reach of signals and abstract sockets.
    Landlock,
    /// A control group that limits memory.
    MemoryGroup,
    /// A separate network.
    NetworkNamespace,
    /// A control group that limits processes.
    PidsGroup,
    /// Separate process ids: all remaining processes die with process 1.
    PidNamespace,
    /// Limits of each process, and no new privileges.
    Rlimits,
    /// Restricts system calls.
    Seccomp,
    /// Separate users, within which the other namespaces can be created.
    UserNamespace,
}

impl Mechanism {
    /// Returns the name of the mechanism.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Landlock => "landlock",
            Self::MemoryGroup => "memory cgroup",
            Self::NetworkNamespace => "network namespace",
            Self::PidsGroup => "pids cgroup",
            Self::PidNamespace => "pid namespace",
            Self::Rlimits => "rlimits",
            Self::Seccomp => "seccomp",
            Self::UserNamespace => "user namespace",
        }
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The result of trying one mechanism.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SupportRow {
    /// The mechanism.
    pub mechanism: Mechanism,
    /// Whether the mechanism works here.
    pub is_there: bool,
    /// Details of the support, or the answer of the kernel.
    pub detail: String,
    /// Hint for a missing mechanism.
    pub mend: Option<String>,
}
