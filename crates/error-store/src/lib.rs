//! Whole errors for people and later turns, one line for the model.
//!
//! A tool's failure can be a stack trace of thousands of lines. The [`ErrorStore`] stores it completely; the model
//! reads a [`Summary`] of at most 100 characters and an id, and reads more with [`ErrorDetail`] (the tool
//! `get_error_detail`) if necessary. A store that fails never fails the run: the model then reads the first 500
//! characters.
//!
//! A large result is stored in the same way ([`ResultStore`], `get_tool_result`): the model reads its beginning, and
//! more if necessary.
//!
//! Text is redacted when an error or result is created ([`NewError::new`], [`NewResult::new`]), so that every store has
//! only redacted text, also if it is used alone.

mod count;
mod detail;
mod error;
mod filter;
mod hold;
mod id;
mod lookup;
mod memory;
mod memory_results;
mod new_error;
mod origin;
mod page;
mod present;
mod raw;
mod record;
mod result_tool;
mod results;
mod retention;
mod shelf;
mod store;
mod stores;
mod summary;

pub use count::{CountBy, ErrorCount};
pub use detail::ErrorDetail;
pub use error::StoreError;
pub use filter::{ErrorFilter, ResultFilter};
pub use hold::{Hold, Holds};
pub use id::error_id;
pub use lookup::Lookup;
pub use memory::MemoryErrorStore;
pub use memory_results::MemoryResultStore;
pub use new_error::NewError;
pub use origin::Origin;
pub use page::DEFAULT_PAGE_BYTES;
pub use present::{FALLBACK_CHARS, fallback_text, stored_text};
pub use raw::{raw_json, readable};
pub use record::ErrorRecord;
pub use result_tool::ResultDetail;
pub use results::{
    NewResult, PREVIEW_CHARS, ResultEntry, ResultRecord, ResultStore, preview_text, result_id,
    truncated_text,
};
pub use retention::{Pruned, Retention};
pub use store::{ErrorStats, ErrorStore, StoredError};
pub use stores::Store;
pub use summary::{MAX_SUMMARY_CHARS, Summary};
