//! Event log, error store, result store and state store in one PostgreSQL database, shared by any number of
//! processes.
//!
//! All tables are in the schema `backstop`, so that an application can use the same database. A [`Database`] has writer
//! tasks for appends: those that arrive during a commit share the next one. All other statements use a pool of
//! connections. A process that writes to runs has a lease and, if it reaches the server directly, an advisory lock; a
//! process that lost both can write nothing any more, because every append depends on the epoch of its run.
//!
//! It never changes a table outside its schema, and none of its transactions waits for a model or a tool.
//!
//! ```no_run
//! use backstop_event_log::{RunFilter, Runs};
//! use backstop_store_postgres::Database;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let database = Database::connect("postgres://backstop@localhost/agents").await?;
//! let runs = database.log().runs(RunFilter::new()).await?;
//! println!("{} runs", runs.len());
//! database.close().await;
//! # Ok(())
//! # }
//! ```

mod admission;
mod append;
mod approvals;
mod background;
mod claim_lease;
mod claims;
mod connect;
mod current_owner;
mod database;
mod erasure;
mod errors;
mod expired;
mod fault;
mod feed;
mod inbox;
mod interrupted;
mod lease;
mod lease_watch;
mod limits;
mod listing;
mod liveness;
mod log;
mod lost_tails;
mod lookout;
mod notes;
mod open_error;
mod options;
mod owner;
mod passfile;
mod pool;
mod prune;
mod queue;
mod queued;
mod removal;
mod results;
mod rows;
mod run_rows;
mod runs;
mod schema;
mod seals;
mod sent;
mod server;
mod server_time;
mod sessions;
mod start_keys;
mod state;
mod state_add;
mod state_removal;
mod state_scopes;
mod state_words;
mod store_row;
mod stores;
mod subscriptions;
mod sweep;
mod text;
mod transact;
mod transcripts;
mod url;
mod work_count;
mod writer;

pub use database::Database;
pub use errors::PostgresErrorStore;
pub use lease_watch::{LeaseChange, LeaseWatch};
pub use log::PostgresLog;
pub use open_error::OpenError;
pub use options::Options;
pub use queue::{
    Enqueue, Enqueued, Look, Queue, QueueEntry, QueueError, QueueFilter, QueueLimit, QueueState,
    QueueWatch, Ready, StartRefusal, StrandedRun, TakenRun, UnservedQueue, WorkerRow,
};
pub use results::PostgresResultStore;
pub use server::ServerInfo;
pub use state::PostgresStateStore;
