//! What the HTTP provider adapters share, once: one client, timeouts by phase, server-sent events,
//! hints how long to wait, and the table that says what a failure on the wire is.
//!
//! An adapter is a table and a mapping on top of this: it opens an [`Endpoint`] with its [`Row`]s,
//! posts a request to it and reads the [`Answer`], whole, as [`Events`] or as [`Lines`].
//!
//! It never retries, never follows a redirect and never waits longer than its [`Timeouts`] allow.
//! No byte from outside can make it panic, and no key it holds can be printed: what a provider says
//! is redacted, put on one line and bounded before it enters an error.
//!
//! Start at [`Endpoint`], then [`classify`].

mod answer;
mod arguments;
mod calls;
pub mod classify;
mod config_error;
mod connection;
mod decode;
mod endpoint;
mod events;
mod extra;
mod hint;
mod key;
pub mod lenient;
mod lines;
pub mod phrases;
mod said;
mod sign;
mod state;
mod timeouts;
mod wording;

pub use answer::{Answer, read_aloud};
pub use arguments::{parse_arguments, sendable_arguments, sendable_id};
pub use calls::{CallDraft, finish_calls};
pub use classify::{Class, Row, When};
pub use config_error::ConfigError;
pub use endpoint::{Credential, Endpoint, EndpointSettings, deny_real_requests};
pub use events::{Event, Events};
pub use key::ApiKey;
pub use lines::Lines;
pub use said::Said;
pub use sign::{Sign, Unsigned};
pub use state::{Piece, pieces};
pub use timeouts::Timeouts;

/// The most bytes one answer, or one event of a stream, may have.
pub const MAX_ANSWER_BYTES: usize = 32 * 1024 * 1024;

/// The most bytes a stream may have as a whole: a long answer in small, wordy events.
pub const MAX_STREAM_BYTES: usize = 512 * 1024 * 1024;
