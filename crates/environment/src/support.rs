//! What this machine can enforce.

#[cfg(target_os = "linux")]
mod groups;
mod mechanism;
#[cfg(target_os = "linux")]
mod mend;
#[cfg(target_os = "linux")]
mod probe;

use layer0::error::EnvError;

#[cfg(target_os = "linux")]
pub(crate) use groups::{Groups, Homes};
pub use mechanism::{Mechanism, SupportRow};

use crate::Helper;

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
        let probe::Found { rows, landlock_abi, homes } = probe::run(helper)?;
        Ok(KNOWN.get_or_init(|| Self { rows, landlock_abi, homes }).clone())
    }

    /// Tries each mechanism. Here there is none: walls are of Linux.
    ///
    /// # Errors
    ///
    /// [`EnvError::ProvisionFailed`], always.
    #[cfg(not(target_os = "linux"))]
    pub fn probe(_: &Helper) -> Result<Self, EnvError> {
        Err(EnvError::ProvisionFailed(crate::not_enforced::NOT_HERE.to_owned()))
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
