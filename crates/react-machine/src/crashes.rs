//! How often in a row the process of a run died.

/// How often a process may die without a step of the run being completed in between.
const MAX_CRASHES: u32 = 3;

/// How often in a row a process died that ran the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Crashes {
    in_a_row: u32,
    /// Is the next recovery that of a copy, for which no process died?
    is_copying: bool,
}

impl Crashes {
    /// A step was completed.
    pub(crate) const fn forget(&mut self) {
        *self = Self { in_a_row: 0, is_copying: false };
    }

    /// The run becomes a copy, which sorts out what is open as if a process had died.
    pub(crate) const fn begin_copy(&mut self) {
        *self = Self { in_a_row: 0, is_copying: true };
    }

    /// Counts a recovery. Were there too many now?
    pub(crate) const fn count(&mut self) -> bool {
        let is_last = self.is_last();
        if !self.is_copying {
            self.in_a_row = self.in_a_row.saturating_add(1);
        }
        self.is_copying = false;
        is_last
    }

    /// Is the next recovery one too many?
    pub(crate) const fn is_last(&self) -> bool {
        !self.is_copying && self.in_a_row.saturating_add(1) >= MAX_CRASHES
    }
}
