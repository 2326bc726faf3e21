//! Secrets that redactors share.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use crate::held::{SecretSearch, is_searched};

/// Maximum number of obtained secrets; those that were obtained longest ago are forgotten first.
const MAX_OBTAINED: usize = 256;

/// Secrets that several redactors share, also those that are added after the redactors were built.
///
/// Give one set to all redactors of a process that obtains secrets while it runs. Clones are the
/// same set.
///
/// ```
/// use backstop_redact::{Redactor, SharedSecrets};
///
/// let secrets = SharedSecrets::default();
/// let redactor = Redactor::new().with_shared_secrets(&secrets);
/// secrets.hold("known-to-all-of-them");
/// assert_eq!(redactor.redact("it is known-to-all-of-them"), "it is [redacted]");
/// ```
#[derive(Clone, Default)]
pub struct SharedSecrets(Arc<RwLock<KnownSecrets>>);

#[derive(Default)]
struct KnownSecrets {
    held: BTreeSet<String>,
    obtained: VecDeque<String>,
    /// Number of changes.
    version: u64,
}

impl SharedSecrets {
    /// Adds a secret that is redacted for as long as the set exists. Secrets below
    /// [`MIN_SECRET_CHARS`](crate::MIN_SECRET_CHARS) are ignored.
    pub fn hold(&self, secret: impl Into<String>) {
        let secret = secret.into();
        if is_searched(&secret) {
            self.change(|known| known.held.insert(secret));
        }
    }

    /// Adds a secret that was obtained for a time. The last 256 are redacted.
    pub(crate) fn obtain(&self, secret: &str) {
        let is_last =
            |known: &KnownSecrets| known.obtained.back().is_some_and(|last| last == secret);
        if is_searched(secret) && !is_last(&self.0.read().unwrap_or_else(PoisonError::into_inner)) {
            self.change(|known| known.obtain(secret));
        }
    }

    /// Returns whether there are secrets.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).count() == 0
    }

    fn change(&self, add: impl FnOnce(&mut KnownSecrets) -> bool) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if add(&mut known) {
            known.version += 1;
        }
    }
}

impl KnownSecrets {
    /// Adds an obtained secret as the last one; returns whether the set has changed.
    fn obtain(&mut self, secret: &str) -> bool {
        let before = self.obtained.len();
        self.obtained.retain(|other| other != secret);
        let is_new = self.obtained.len() == before;
        self.obtained.push_back(secret.to_owned());
        let above = self.obtained.len().saturating_sub(MAX_OBTAINED);
        self.obtained.drain(..above);
        is_new
    }

    fn count(&self) -> usize {
        self.held.len() + self.obtained.len()
    }
}

/// Prints the number of secrets, never a secret.
impl fmt::Debug for SharedSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.read().unwrap_or_else(PoisonError::into_inner).count();
        f.debug_tuple("SharedSecrets").field(&count).finish()
    }
}

/// The search for the own and the shared secrets of a redactor, built on first use, and again after
/// shared secrets have changed.
#[derive(Default)]
pub(crate) struct SearchCache(RwLock<Option<BuiltSearch>>);

struct BuiltSearch {
    /// Version of the shared secrets; 0 without any.
    version: u64,
    search: Option<Arc<SecretSearch>>,
}

impl SearchCache {
    /// Returns the current search; `None` without secrets.
    pub(crate) fn search(
        &self,
        own: &[String],
        shared: Option<&SharedSecrets>,
    ) -> Option<Arc<SecretSearch>> {
        let known = shared.map(|shared| shared.0.read().unwrap_or_else(PoisonError::into_inner));
        let version = known.as_ref().map_or(0, |known| known.version);
        if let Some(built) = &*self.0.read().unwrap_or_else(PoisonError::into_inner)
            && built.version == version
        {
            return built.search.clone();
        }
        let shared = known.iter().flat_map(|known| known.held.iter().chain(&known.obtained));
        let secrets: Vec<String> = own.iter().chain(shared).cloned().collect();
        let search = SecretSearch::new(&secrets).map(Arc::new);
        let built = BuiltSearch { version, search: search.clone() };
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(built);
        search
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Redactor;

    /// Spec: S9
    #[test]
    fn redactors_know_secrets_of_later() {
        let secrets = SharedSecrets::default();
        let first = Redactor::new().with_secret("own-secret-of-one").with_shared_secrets(&secrets);
        let second = first.clone().with_pattern("CUST-[0-9]+".parse().unwrap());
        assert!(secrets.is_empty() && first.holds_secrets());
        let text = "own-secret-of-one later-secret obtained-secret";
        assert_eq!(first.redact_held(text), "[redacted] later-secret obtained-secret");
        secrets.hold("later-secret");
        assert_eq!(second.redact_held(text), "[redacted] [redacted] obtained-secret");
        second.obtain("obtained-secret");
        for redactor in [&first, &second] {
            assert_eq!(redactor.redact_held(text), "[redacted] [redacted] [redacted]");
        }
        let shown = format!("{secrets:?} {first:?}");
        assert!(!shown.contains("secret-of") && !shown.contains("later"), "{shown}");
    }

    /// Spec: S9. A secret that is in use is obtained again.
    #[test]
    fn last_obtained_secrets_are_known() {
        let secrets = SharedSecrets::default();
        let redactor = Redactor::new().with_shared_secrets(&secrets);
        secrets.hold("held-for-ever");
        for number in 0..2 * MAX_OBTAINED {
            secrets.obtain(&format!("token-number-{number:03}"));
            secrets.obtain("token-in-use");
        }
        let text = "held-for-ever token-in-use token-number-256 token-number-257 token-number-511";
        let known = "[redacted] [redacted] token-number-256 [redacted] [redacted]";
        assert_eq!(redactor.redact_held(text), known);
        secrets.hold("short");
        assert_eq!(redactor.redact_held("short"), "short");
    }
}
