//! Tools that an agent file can name: own commands, and the built-in tools.
//!
//! A [`CommandTool`] runs a program with the arguments as one line of JSON on its standard input, and a [`Shell`] runs
//! a command line; both are started as a [`Program`].
//! [`FsList`], [`FsRead`] and [`FsSearch`] read folders and files. The policy decides which ones, on paths with
//! resolved links. [`FsWrite`] writes a file after a person has approved the diff. [`MemorySave`], [`MemorySearch`] and
//! [`MemoryForget`] keep notes for later runs.
//!
//! With the feature `http`, `HttpFetch` reads from servers whose addresses are allowed.
//!
//! A tool does not decide what is allowed: it declares the capabilities of a call, and the policy grants them.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod command;
mod fs_list;
mod fs_read;
mod fs_search;
mod fs_write;
#[cfg(feature = "http")]
mod http_fetch;
mod memory;
mod path;
mod shell;
mod walk;

pub use command::CommandTool;
pub use command::program::{Program, ProgramEnd};
pub use fs_list::FsList;
pub use fs_read::FsRead;
pub use fs_search::FsSearch;
pub use fs_write::FsWrite;
#[cfg(feature = "http")]
pub use http_fetch::{HttpFetch, Resolve};
pub use memory::{MemoryForget, MemorySave, MemorySearch};
pub use shell::Shell;
