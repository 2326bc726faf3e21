//! The tools an agent file can name: commands of your own, and the built-in ones.
//!
//! A [`CommandTool`] runs a program with the arguments as one line of JSON on its standard input.
//! [`FsRead`] and [`FsSearch`] read files; which ones is decided by policy, on paths with links
//! resolved.
//!
//! Nothing here decides what is allowed: a tool states what a call needs, the policy grants it.

mod command;
mod fs_read;
mod fs_search;
mod path;

pub use command::CommandTool;
pub use fs_read::FsRead;
pub use fs_search::FsSearch;
