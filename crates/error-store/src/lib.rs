//! Whole errors for whoever asks, one line for the model.
//!
//! A tool's failure can be a stack trace of thousands of lines. The [`ErrorStore`] keeps it whole;
//! the model reads a [`Summary`] of at most 100 characters and an id, and asks
//! [`ErrorDetail`] (the tool `get_error_detail`) when that is not enough. A store that fails never
//! fails the run: the model then reads the first 500 characters.
//!
//! This crate never redacts: what it is given has already passed the boundary that does.

mod detail;
mod error;
mod id;
mod memory;
mod present;
mod raw;
mod store;
mod summary;

pub use detail::{DATABASE_ERROR, DEFAULT_PAGE_BYTES, ErrorDetail};
pub use error::StoreError;
pub use id::error_id;
pub use memory::MemoryErrorStore;
pub use present::{FALLBACK_CHARS, fallback_text, stored_text};
pub use raw::{raw_json, readable};
pub use store::{
    ErrorFilter, ErrorRecord, ErrorStats, ErrorStore, NewError, Pruned, Retention, Stored,
};
pub use summary::{MAX_SUMMARY_CHARS, Summary};
