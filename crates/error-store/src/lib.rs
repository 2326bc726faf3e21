//! Whole errors for whoever asks, one line for the model.
//!
//! A tool's failure can be a stack trace of thousands of lines. The [`ErrorStore`] keeps it whole;
//! the model reads a [`Summary`] of at most 100 characters and an id, and asks
//! [`ErrorDetail`] (the tool `get_error_detail`) when that is not enough. A store that fails never
//! fails the run: the model then reads the first 500 characters.
//!
//! A large result is kept the same way ([`ResultStore`], `get_tool_result`): the model reads its
//! beginning and asks for more when it needs more.
//!
//! This crate never redacts: what it is given has already passed the boundary that does.

mod detail;
mod page;
mod result_tool;
mod results;
mod error;
mod id;
mod look_up;
mod memory;
mod present;
mod raw;
mod store;
mod summary;

pub use detail::{DATABASE_ERROR, ErrorDetail};
pub use error::{StoreError, code_of_text};
pub use id::error_id;
pub use memory::MemoryErrorStore;
pub use page::DEFAULT_PAGE_BYTES;
pub use present::{FALLBACK_CHARS, fallback_text, stored_text};
pub use raw::{raw_json, readable};
pub use result_tool::ResultDetail;
pub use results::{
    MemoryResultStore, NewResult, PREVIEW_CHARS, ResultRecord, ResultStore, preview_text,
    result_id, truncated_text,
};
pub use store::{
    ErrorFilter, ErrorRecord, ErrorStats, ErrorStore, NewError, Pruned, Retention, Stored,
};
pub use summary::{MAX_SUMMARY_CHARS, Summary};
