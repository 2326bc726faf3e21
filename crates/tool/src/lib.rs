//! Tools, the permission to call them, and the failures of calls.
//!
//! A [`Tool`] describes itself with a [`ToolSpec`] and runs on JSON [`Arguments`]. A [`Toolset`] finds a tool, checks
//! the arguments against its schema and its needs against [`Grants`]; a need that is not granted is denied. Every
//! failure is a [`ToolError`], which the model reads as data: a tool never ends a run.
//!
//! This crate never runs a tool by itself: timeouts, panics and concurrency are handled by the driver.
//!
//! ```
//! use backstop_tool::{Grants, ToolError, Toolset, tool};
//!
//! /// Add two integers.
//! #[tool(idempotent)]
//! async fn add(x: i64, y: i64) -> Result<i64, ToolError> {
//!     x.checked_add(y).ok_or_else(|| ToolError::ExecutionFailed("the sum is too large".into()))
//! }
//!
//! let tools = Toolset::new().with(add)?;
//! let error = tools.admit("add", serde_json::json!({"x": 40}), &Grants::none()).err().unwrap();
//! assert_eq!(error.to_string(), "invalid input: y is required");
//! # Ok::<(), backstop_tool::ToolRegistrationError>(())
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

mod arguments;
mod capability;
mod error;
mod fn_tool;
mod images;
mod nulls;
mod people;
mod policy;
mod real_path;
mod registry;
mod source;
mod state;
mod state_type;
mod stderr;
mod text;
mod tool;
mod validate;
mod written;

pub use arguments::Arguments;
pub use backstop_tool_macros::tool;
pub use capability::check_capability;
pub use error::ToolError;
pub use fn_tool::FnTool;
pub use images::{MAX_SHOWN_IMAGE_BYTES, MAX_SHOWN_IMAGES, NotShown, ShownImages};
pub use layer0::{JsonText, ToolSpec};
pub use people::{Given, People};
pub use policy::{GrantError, Grants};
pub use real_path::real_path;
pub use registry::{Admitted, ToolNotFound, ToolRegistrationError, Toolset};
pub use source::{LeftOut, ListedTool, ToolChanges, ToolListing, ToolSource};
pub use state::State;
pub use state_type::StateType;
pub use stderr::Stderr;
pub use text::{failed_text, missing_text, nearest};
pub use tool::{DispatchSpec, Probe, Tool, ToolContext, generate_schema};
pub use validate::{Schema, SchemaError, SchemaViolation};
pub use written::PartialOutput;

/// Items used by the code that [`macro@tool`] generates; not part of the public API.
#[doc(hidden)]
pub mod __private {
    pub use async_trait::async_trait;
    pub use schemars;
    pub use serde;

    pub use crate::tool::{decode_arguments, encode_output, encode_probe, generate_schema};
}
