//! Secrets that a client redacts from the texts of its server.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use backstop_redact::Redactor;

/// Maximum number of obtained secrets; the oldest are forgotten first.
const MAX_OBTAINED: usize = 64;

/// The secrets in a server's description, and those obtained later: tokens of logins, and credentials that are fetched
/// when its program starts.
#[derive(Debug)]
pub(crate) struct Secrets(Mutex<KnownSecrets>);

#[derive(Debug)]
struct KnownSecrets {
    /// Redactor of the described secrets.
    described: Redactor,
    obtained: VecDeque<Obtained>,
    /// Redactor of all secrets.
    all: Redactor,
}

struct Obtained(String);

impl Secrets {
    pub(crate) fn new(described: Redactor) -> Arc<Self> {
        let known = KnownSecrets { all: described.clone(), described, obtained: VecDeque::new() };
        Arc::new(Self(Mutex::new(known)))
    }

    /// Adds an obtained secret, also to the shared secrets of the redactor.
    pub(crate) fn add(&self, secret: &str) {
        let mut known = self.lock_known();
        known.described.obtain(secret);
        if known.obtained.iter().any(|obtained| obtained.0 == secret) {
            return;
        }
        known.obtained.push_back(Obtained(secret.to_owned()));
        let above = known.obtained.len().saturating_sub(MAX_OBTAINED);
        known.obtained.drain(..above);
        let described = known.described.clone();
        let obtained = known.obtained.iter();
        known.all =
            obtained.fold(described, |redactor, obtained| redactor.with_secret(&*obtained.0));
    }

    /// Returns a redactor of all current secrets.
    pub(crate) fn redactor(&self) -> Redactor {
        self.lock_known().all.clone()
    }

    /// Redacts the secrets, and text that looks like one.
    pub(crate) fn redact(&self, text: &str) -> String {
        self.redactor().redact(text).into_owned()
    }

    fn lock_known(&self) -> MutexGuard<'_, KnownSecrets> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shows no secret.
impl std::fmt::Debug for Obtained {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Obtained")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: Q9
    #[test]
    fn the_last_obtained_secrets_are_known() {
        let secrets = Secrets::new(Redactor::new().with_secret("described-secret"));
        for n in 0..100 {
            secrets.add(&format!("token-number-{n:03}"));
        }
        let text = "described-secret token-number-000 token-number-036 token-number-099";
        let shown = secrets.redactor().redact_held(text).into_owned();
        assert_eq!(shown, "[redacted] token-number-000 [redacted] [redacted]");
        assert!(!format!("{secrets:?}").contains("token-number"));
    }
}
