use std::fmt;

/// What the kernel enforces a rule by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Mechanism {
    /// Files, and whom signals and abstract sockets reach.
    Landlock,
    /// A control group that counts memory.
    MemoryGroup,
    /// A network of its own.
    NetworkNamespace,
    /// A control group that counts processes.
    PidsGroup,
    /// Process ids of its own: what is left dies with process 1.
    PidNamespace,
    /// Limits of each process, and no new privileges.
    Rlimits,
    /// Which system calls there are.
    Seccomp,
    /// Users of its own, within which the other namespaces may be made.
    UserNamespace,
}

impl Mechanism {
    /// Returns what it is called.
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

/// What came of trying one mechanism.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SupportRow {
    /// The mechanism.
    pub mechanism: Mechanism,
    /// Does it work here?
    pub is_there: bool,
    /// What was found, or what the kernel answered.
    pub detail: String,
    /// What to do about it, where something is missing.
    pub mend: Option<String>,
}
