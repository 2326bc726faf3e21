//! Event log and error store in one SQLite file.
//!
//! A [`Database`] has one writer task. It gathers what arrives while a commit is under way and
//! commits it together, so that one caller pays nothing extra and many share one sync to disk.
//! Readers use connections of their own and see what is committed.
//!
//! It never creates a file for a reader, and never touches a database that is not its own.

mod append;
mod approvals;
mod claims;
mod database;
mod errors;
mod fault;
mod log;
mod many;
mod results;
mod schema;
mod writer;

pub use database::{Database, Durability};
pub use errors::SqliteErrorStore;
pub use fault::OpenError;
pub use log::SqliteLog;
pub use results::SqliteResultStore;
