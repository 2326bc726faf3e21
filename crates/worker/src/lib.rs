//! Workers that share the runs of one PostgreSQL database.
//!
//! Any number of processes take runs from its queue, and resume runs that another process left: because it died,
//! because a parked run is due, or because the event that a run waited for has arrived. A run continues where its
//! record ends, so that finished work is not repeated. No process has a name or a place that has to be kept.
//!
//! A worker never decides what an operator does, and keeps no state of its own: the queue and the records are in the
//! database.
//!
//! ```no_run
//! use backstop_provider::ScriptedProvider;
//! use backstop_react::Agent;
//! use backstop_store_postgres::{Database, QueueLimit};
//! use backstop_worker::Worker;
//! use tokio_util::sync::CancellationToken;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let database = Database::connect("postgres://backstop@localhost/agents").await?;
//! let agent = Agent::builder(ScriptedProvider::saying(["On its way."]))
//!     .name("support")
//!     .log(database.log())
//!     .build()?;
//! let worker = Worker::builder(&database)
//!     .operator(agent)
//!     .queue(QueueLimit::new("default").limit(100))
//!     .concurrency(16)
//!     .build()?;
//! // Until the token is cancelled, as on SIGTERM.
//! worker.run(CancellationToken::new()).await?;
//! database.close().await;
//! # Ok(())
//! # }
//! ```

mod builder;
mod health;
mod parts;
mod pause;
mod report;
mod rounds;
mod run_work;
mod worker;

pub use builder::{WorkerBuildError, WorkerBuilder};
pub use report::{RunChange, RunState, WorkerEnd, WorkerReport};
pub use worker::Worker;
