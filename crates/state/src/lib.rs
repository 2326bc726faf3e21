//! State that outlives a run: the rules of every [`StateStore`], and a store in memory.
//!
//! ```
//! use backstop_state::MemoryStateStore;
//! use layer0::StateStore;
//! use layer0::state::{Expected, Scope, StateWrite};
//! use serde_json::json;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), layer0::error::StateError> {
//! let state = MemoryStateStore::new();
//! let seen = state.write(StateWrite::new(Scope::Global, "seen", json!(1))).await?;
//! // A writer that has read the value writes only if it is still of that version.
//! let next = StateWrite::new(Scope::Global, "seen", json!(2)).expecting(Expected::Version(seen));
//! state.write(next).await?;
//! assert_eq!(state.read(&Scope::Global, "seen").await?.unwrap().value, json!(2));
//! # Ok(())
//! # }
//! ```
//!
//! [`StateStore`]: layer0::StateStore

mod entries;
mod memory;
mod prepared;
mod redacted;
mod words;

pub use entries::{MemoryEntries, Remembered};
pub use memory::MemoryStateStore;
pub use prepared::{MAX_KEY_BYTES, MAX_VALUE_BYTES, PreparedWrite, check_identity, prefix_end};
pub use redacted::RedactedStateStore;
pub use words::{searched_text, words};
