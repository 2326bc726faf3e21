use layer0::Timestamp;

/// Whether a session is alive: one that was copied from it lives as long as its copies.
#[derive(Debug, Clone, Copy)]
#[expect(
    clippy::exhaustive_structs,
    reason = "a store fills every field, and has to learn of a new one"
)]
pub struct Life {
    /// Has it a run that is not over?
    pub is_open: bool,
    /// When the last run ended; `None` where there was none.
    pub ended_at: Option<Timestamp>,
}
