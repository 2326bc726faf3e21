use layer0::Timestamp;

/// The activity of a session and its copies: a session lives as long as its copies.
#[derive(Debug, Clone, Copy)]
#[expect(
    clippy::exhaustive_structs,
    reason = "a store fills every field, and has to learn of a new one"
)]
pub struct Life {
    /// Whether it has an open run.
    pub is_open: bool,
    /// End of its last run; `None` if there was no run.
    pub ended_at: Option<Timestamp>,
}
