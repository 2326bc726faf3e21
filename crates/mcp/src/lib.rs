//! Tools of MCP servers (the Model Context Protocol), over stdio or streamable HTTP.
//!
//! An [`McpServer`] describes a server; [`McpServer::connect`] gives an [`McpClient`], a
//! [`ToolSource`](backstop_tool::ToolSource) with the tools for an agent. Every fault of a server becomes the failure
//! of a call, which the model reads: nothing hangs, nothing grows without bound, and the next call works after each
//! fault. The table of faults is `faults.json`.
//!
//! A server's own statements about its tools are never trusted: only the operator declares that a tool is read-only,
//! idempotent or subject to approval ([`McpServer::read_only`], [`McpServer::idempotent`], [`McpServer::approval`]). A
//! call that may have acted is never sent again unless its tool is declared idempotent.
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use backstop_mcp::McpServer;
//! use layer0::failure::{Failure, hint};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let server = McpServer::command("files", ["no-such-program", "./data"])
//!     .variables(BTreeMap::from([("PATH".into(), "/usr/bin:/bin".into())]))
//!     .read_only(["read_*", "list_*"]);
//! let error = server.connect().await.unwrap_err();
//! assert_eq!(error.to_string(), "MCP server `files`: starting `no-such-program` failed");
//! assert_eq!(error.code(), "mcp.start_failed");
//! assert_eq!(hint(&error), "Install `no-such-program`, or let the server see `PATH`.");
//! # }
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

mod backoff;
mod client;
mod connection;
mod content;
mod error;
mod fault;
mod http_client;
mod input;
mod listing;
mod names;
mod oauth;
mod progress;
mod secrets;
mod server;
mod spawn;
mod tool;
mod upstream;

pub use client::McpClient;
pub use error::McpError;
pub use oauth::ClientCredentials;
pub use progress::CallProgress;
pub use server::McpServer;
#[cfg(feature = "walls")]
pub use spawn::WalledSpawner;
pub use spawn::{
    Input, LocalSpawner, Output, RunningProgram, ServerCommand, Spawn, SpawnedProgram,
};

/// Maximum size of a server's message, in bytes.
pub(crate) const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;
