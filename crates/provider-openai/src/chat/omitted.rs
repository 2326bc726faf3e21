//! Ends of answers that are left out.

/// The parts of an answer's end that an endpoint leaves out.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Omitted {
    pub(super) done: bool,
    pub(super) finish_reason: bool,
}
