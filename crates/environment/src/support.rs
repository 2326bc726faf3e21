//! What this machine can enforce.

#[cfg(target_os = "linux")]
mod groups;
#[cfg(target_os = "linux")]
mod mend;
#[cfg(target_os = "linux")]
mod probe;

use std::fmt;

use layer0::error::EnvError;

#[cfg(target_os = "linux")]
pub(crate) use groups::{Groups, Homes};

use crate::Helper;

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

/// What this machine can enforce, one row for each mechanism.
///
/// ```
/// use backstop_environment::{Mechanism, Support};
///
/// fn print(support: &Support) {
///     for row in support.rows() {
///         println!("{:18} {} {}", row.mechanism, row.is_there, row.detail);
///     }
/// }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Support {
    rows: Vec<SupportRow>,
    landlock_abi: u32,
    #[cfg(target_os = "linux")]
    homes: Homes,
}

impl Support {
    /// Tries each mechanism in a process that ends then; once for each process of the caller, some milliseconds.
    ///
    /// # Errors
    ///
    /// [`EnvError::ProvisionFailed`], when the helper cannot be run.
    #[cfg(target_os = "linux")]
    pub fn probe(helper: &Helper) -> Result<Self, EnvError> {
        use std::sync::OnceLock;

        static KNOWN: OnceLock<Support> = OnceLock::new();
        if let Some(known) = KNOWN.get() {
            return Ok(known.clone());
        }
        let probed = probe::run(helper)?;
        Ok(KNOWN.get_or_init(|| probed).clone())
    }

    /// Tries each mechanism. Here there is none: walls are of Linux.
    ///
    /// # Errors
    ///
    /// [`EnvError::ProvisionFailed`], always.
    #[cfg(not(target_os = "linux"))]
    pub fn probe(_: &Helper) -> Result<Self, EnvError> {
        Err(EnvError::ProvisionFailed(crate::walled::NOT_HERE.to_owned()))
    }

    /// Returns what came of each.
    #[must_use]
    pub fn rows(&self) -> &[SupportRow] {
        &self.rows
    }

    /// Returns the version of Landlock's interface; 0 where it is not there.
    #[must_use]
    pub const fn landlock_abi(&self) -> u32 {
        self.landlock_abi
    }

    /// Does a mechanism work here?
    #[must_use]
    pub fn has(&self, mechanism: Mechanism) -> bool {
        self.rows.iter().any(|row| row.mechanism == mechanism && row.is_there)
    }

    /// Says why a mechanism does not work here, and what to do about it.
    pub(crate) fn lack(&self, mechanism: Mechanism) -> String {
        let row = self.rows.iter().find(|row| row.mechanism == mechanism);
        let Some(row) = row else { return format!("{mechanism} is not there") };
        match &row.mend {
            Some(mend) => format!("{mechanism}: {} ({mend})", row.detail),
            None => format!("{mechanism}: {}", row.detail),
        }
    }

    #[cfg(target_os = "linux")]
    pub(crate) const fn homes(&self) -> &Homes {
        &self.homes
    }

    /// A machine that has all but these, and this version of Landlock.
    #[cfg(test)]
    pub(crate) fn without(missing: &[Mechanism], landlock_abi: u32) -> Self {
        let all = [
            Mechanism::Landlock,
            Mechanism::MemoryGroup,
            Mechanism::NetworkNamespace,
            Mechanism::PidsGroup,
            Mechanism::PidNamespace,
            Mechanism::Rlimits,
            Mechanism::Seccomp,
            Mechanism::UserNamespace,
        ];
        let row = |mechanism| SupportRow {
            mechanism,
            is_there: !missing.contains(&mechanism),
            detail: "refused".to_owned(),
            mend: None,
        };
        Self { rows: all.map(row).to_vec(), landlock_abi, ..Self::default() }
    }
}
