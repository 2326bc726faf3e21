//! The number of consecutive deaths of a run's process.

/// Maximum number of consecutive deaths of a process without a completed step of the run.
const MAX_CRASHES: u32 = 3;

/// The number of consecutive deaths of a run's process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Crashes {
    in_a_row: u32,
    /// Whether the next recovery is that of a fork, for which no process died.
    is_copying: bool,
}

impl Crashes {
    /// Resets the count after a completed step.
    pub(crate) const fn forget(&mut self) {
        *self = Self { in_a_row: 0, is_copying: false };
    }

    /// Prepares for a fork, which recovers open steps as if a process had died.
    pub(crate) const fn begin_copy(&mut self) {
        *self = Self { in_a_row: 0, is_copying: true };
    }

    /// Counts a recovery. Returns whether there were too many.
    pub(crate) const fn count(&mut self) -> bool {
        let is_last = self.is_last();
        if !self.is_copying {
            self.in_a_row = self.in_a_row.saturating_add(1);
        }
        self.is_copying = false;
        is_last
    }

    /// Returns whether the next recovery is one too many.
    pub(crate) const fn is_last(&self) -> bool {
        !self.is_copying && self.in_a_row.saturating_add(1) >= MAX_CRASHES
    }
}
