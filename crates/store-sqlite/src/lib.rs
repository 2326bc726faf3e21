//! Event log, error store and result store in one SQLite file.
//!
//! A [`Database`] has one writer task. Jobs that arrive during a commit share the next one, so that a single caller
//! pays nothing extra and many callers share one sync to disk. Readers use their own connections and see committed
//! data.
//!
//! It never creates a file for a reader, and never changes a database that is not its own.

mod admission;
mod append;
mod approvals;
mod background;
mod chore;
mod claims;
mod damage;
mod database;
mod erasure;
mod errors;
mod expired;
mod fault;
mod feed;
mod file;
mod file_work;
mod forget;
mod identity;
mod inbox;
mod interrupted;
mod job;
mod job_error;
mod lease;
mod life;
mod listing;
mod log;
mod lost_tails;
mod lookout;
mod many;
mod network_fs;
mod open_options;
mod own_files;
mod owner;
#[cfg(test)]
mod plan;
mod prune;
mod removal;
mod results;
mod rows;
mod run_rows;
mod runs;
mod schema;
mod seals;
mod sent;
mod sessions;
mod start_keys;
mod state;
mod store_row;
mod stores;
mod subscriptions;
mod transcripts;
mod waypoints;
mod writer;

pub use database::Database;
pub use errors::SqliteErrorStore;
pub use fault::{OlderSchema, OpenError};
pub use file_work::{BackupError, Vacuumed};
pub use log::SqliteLog;
pub use open_options::{Durability, OpenOptions};
pub use results::SqliteResultStore;
pub use state::SqliteStateStore;
