//! Tools with which a model keeps notes for later runs.

mod forget;
mod save;
mod search;

use backstop_state::MemoryEntries;
use backstop_tool::ToolError;
use layer0::error::StateError;
use layer0::failure::{Chain, Failure};

pub use forget::MemoryForget;
pub use save::MemorySave;
pub use search::MemorySearch;

/// Returns the capability for a call: `memory:read:session`, `memory:write:agent`, …
fn capability(what: &str, entries: &MemoryEntries) -> String {
    format!("memory:{what}:{}", entries.kind())
}

/// Creates the failure of the store for the model.
fn store_error(error: &StateError) -> ToolError {
    ToolError::ExecutionFailed(Chain(error).to_string()).with_code(error.code())
}
