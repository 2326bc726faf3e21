//! Parts of a record that a key does not protect.

/// The parts of a keyed run without an HMAC, because an older version wrote them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UncheckedParts {
    /// Whether the row could not be checked: it may be an earlier version of the row.
    pub row: bool,
    /// The events that may have been erased without the key.
    pub erasures: Vec<u64>,
}

impl UncheckedParts {
    /// Returns whether everything was checked.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        !self.row && self.erasures.is_empty()
    }
}
