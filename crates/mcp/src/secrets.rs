//! What a client holds secret of its server.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use backstop_redact::Redactor;

/// How many secrets that were obtained are remembered; the oldest are forgotten first.
const MAX_OBTAINED: usize = 64;

/// The secrets that a server is described with, and those that are obtained while it is used: tokens of logins,
/// credentials that are fetched when its program starts.
#[derive(Debug)]
pub(crate) struct Secrets(Mutex<Known>);

#[derive(Debug)]
struct Known {
    /// Knows those of the description.
    described: Redactor,
    obtained: VecDeque<Obtained>,
    /// Knows all of them.
    all: Redactor,
}

struct Obtained(String);

impl Secrets {
    pub(crate) fn new(described: Redactor) -> Arc<Self> {
        let known = Known { all: described.clone(), described, obtained: VecDeque::new() };
        Arc::new(Self(Mutex::new(known)))
    }

    /// Keeps one more secret out of what the server is quoted with.
    pub(crate) fn add(&self, secret: &str) {
        let mut known = self.known();
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

    /// Returns what knows all of them as of now.
    pub(crate) fn redactor(&self) -> Redactor {
        self.known().all.clone()
    }

    /// Takes out secrets, and what looks like one.
    pub(crate) fn redact(&self, text: &str) -> String {
        self.redactor().redact(text).into_owned()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shows nothing of it.
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
