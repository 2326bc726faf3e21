//! Scripted parts that a run has to reach.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The faults, signals, decisions and hooks of a scenario, each with its mark. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Marks(Arc<Mutex<Vec<(String, ReachMark)>>>);

impl Marks {
    /// Adds a part under its name in the report.
    pub(crate) fn add(&self, part: impl Into<String>) -> ReachMark {
        let mark = ReachMark::default();
        let mut marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        marks.push((part.into(), mark.clone()));
        mark
    }

    /// Returns the parts that were not reached, in the order of the scenario.
    pub(crate) fn list_unreached(&self) -> Vec<String> {
        let marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let unreached = marks.iter().filter(|(_, mark)| !mark.is_reached());
        unreached.map(|(part, _)| part.clone()).collect()
    }
}

/// A flag that is set once a part is reached. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReachMark(Arc<AtomicBool>);

impl ReachMark {
    /// Records that the part was reached.
    pub(crate) fn reach(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_reached(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
