//! Mechanisms that this machine supports.

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

/// Support for each mechanism on this machine, one row each.
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
    /// Tries each mechanism in a process that ends afterwards. Takes some milliseconds, once per process of the caller.
    ///
    /// # Errors
    ///
    /// [`EnvError::ProvisionFailed`] if the helper cannot be run.
    #[cfg(target_os = "linux")]
    pub fn probe(helper: &Helper) -> Result<Self, EnvError> {
        use std::sync::OnceLock;

        static KNOWN: OnceLock<Support> = OnceLock::new();
        if let Some(known) = KNOWN.get() {
            return Ok(known.clone());
        }
        let probe::ProbeFindings { rows, landlock_abi, homes } = probe::run(helper)?;
        Ok(KNOWN.get_or_init(|| Self { rows, landlock_abi, homes }).clone())
    }

    /// Fails: walls need Linux.
    ///
    /// # Errors
    ///
    /// Always [`EnvError::ProvisionFailed`].
    #[cfg(not(target_os = "linux"))]
    pub fn probe(_: &Helper) -> Result<Self, EnvError> {
        Err(EnvError::ProvisionFailed(crate::not_enforced::NOT_HERE.to_owned()))
    }

    /// Returns the row of each mechanism.
    #[must_use]
    pub fn rows(&self) -> &[SupportRow] {
        &self.rows
    }

    /// Returns the ABI version of Landlock; 0 if it is missing.
    #[must_use]
    pub const fn landlock_abi(&self) -> u32 {
        self.landlock_abi
    }

    /// Returns whether a mechanism works here.
    #[must_use]
    pub fn has(&self, mechanism: Mechanism) -> bool {
        self.rows.iter().any(|row| row.mechanism == mechanism && row.is_there)
    }

    /// Returns the reason that a mechanism does not work here, with a hint.
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

    /// Returns the support of a machine without the missing mechanisms, and with this version of Landlock.
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
