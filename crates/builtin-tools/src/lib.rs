//! The tools an agent file can name: commands of your own, and the built-in ones.
//!
//! A [`CommandTool`] runs a program with the arguments as one line of JSON on its standard input, [`Shell`]
//! a command line; a [`Program`] is what they run.
//! [`FsList`], [`FsRead`] and [`FsSearch`] look at folders and files; at which ones is decided by
//! policy, on paths with links resolved. [`FsWrite`] writes a file, once a person agreed to the diff.
//! [`MemorySave`], [`MemorySearch`] and [`MemoryForget`] keep notes for later runs.
//!
//! With the feature `http`, `HttpFetch` reads from servers, at addresses that were judged.
//!
//! Nothing here decides what is allowed: a tool states what a call needs, the policy grants it.

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
