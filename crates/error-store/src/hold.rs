use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use layer0::id::SessionId;

/// Guard that keeps a session's texts from being pruned.
#[must_use = "what is not held may be pruned"]
#[derive(Default)]
pub struct Hold(#[expect(dead_code, reason = "held for its drop")] Option<Box<dyn Send + Sync>>);

impl Hold {
    /// Creates a hold that ends when `held` is dropped.
    pub fn holding(held: impl Send + Sync + 'static) -> Self {
        Self(Some(Box::new(held)))
    }

    /// Creates a hold of a store that needs none.
    pub const fn none() -> Self {
        Self(None)
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").finish_non_exhaustive()
    }
}

/// The sessions that have an open run in this process. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Holds(Arc<Mutex<HashMap<SessionId, usize>>>);

impl Holds {
    /// Holds a session.
    pub fn hold(&self, session: &SessionId) -> Hold {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *held.entry(session.clone()).or_default() += 1;
        Hold::holding(HeldSession { holds: self.clone(), session: session.clone() })
    }

    /// Returns whether a run of this session is open.
    #[must_use]
    pub fn is_held(&self, session: &SessionId) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(session)
    }
}

struct HeldSession {
    holds: Holds,
    session: SessionId,
}

impl Drop for HeldSession {
    fn drop(&mut self) {
        let mut held = self.holds.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = held.get_mut(&self.session) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.session);
            }
        }
    }
}
