//! Ends of answers that are omitted.

/// The parts of an answer's end that an endpoint omits.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Omitted {
    pub(super) done: bool,
    pub(super) finish_reason: bool,
}
