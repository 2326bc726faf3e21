//! Interventions of walls.

use std::sync::{Mutex, PoisonError};

/// Maximum number of recorded interventions.
const MOST_NOTES: usize = 64;

/// The interventions of walls for a program, in order, and possible ones.
#[derive(Debug, Default)]
pub(crate) struct Interventions {
    seen: Mutex<Vec<Intervention>>,
    /// Limits and refusals that may have ended the program, without evidence.
    possible: Mutex<Vec<String>>,
}

/// An intervention of walls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Intervention {
    /// A denied host, empty if there was none, and the reason.
    Denied {
        host: String,
        what: String,
    },
    Limit(String),
    /// Attempts to reach hosts without the proxy, which the kernel counted.
    Unrouted(String),
}

impl Intervention {
    /// Returns whether this is a denied host that occurs in the text.
    pub(crate) fn is_named_in(&self, text: &str) -> bool {
        matches!(self, Self::Denied { host, .. } if !host.is_empty() && text.contains(host))
    }
}

impl Interventions {
    /// Records an intervention, unless it is already recorded.
    pub(crate) fn add(&self, note: Intervention) {
        let mut notes = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if notes.len() < MOST_NOTES && !notes.contains(&note) {
            notes.push(note);
        }
    }

    pub(crate) fn all(&self) -> Vec<Intervention> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records a limit or a refusal that may have ended the program.
    pub(crate) fn add_possible(&self, what: String) {
        self.possible.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    pub(crate) fn possible(&self) -> Vec<String> {
        self.possible.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
