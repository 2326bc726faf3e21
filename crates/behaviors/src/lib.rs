//! Code that reacts to what the record says, live and after a restart.
//!
//! A [`Behavior`] names a [`Patterns`](backstop_event_log::Patterns) of events and what to do when one comes; a
//! [`BehaviorHost`] delivers them, each once, with a cursor by name in the log. What was delivered and what came
//! of it is a record of its own.
//!
//! It never changes or delays the run that it reacts to: that is what hooks are for.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use backstop_behaviors::{BehaviorHost, Start, behavior};
//! use backstop_event_log::{EventLog, MemoryLog};
//! use backstop_provider::ScriptedProvider;
//! use backstop_react::Agent;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let log: Arc<dyn EventLog> = Arc::new(MemoryLog::new());
//! let told = behavior("tell", "run.finished".parse()?, |delivery, _| async move {
//!     println!("{} has ended", delivery.event.run);
//!     Ok(())
//! });
//! let serving = BehaviorHost::builder(log.clone()).behavior(told.start(Start::Start)).build()?.serve();
//! let agent = Agent::builder(ScriptedProvider::saying(["Hello."])).shared_log(log).build()?;
//! agent.run("Hi").await?;
//! serving.settle(Duration::from_secs(5)).await;
//! serving.stop().await;
//! # Ok(())
//! # }
//! ```

mod behavior;
mod call;
mod cause;
mod context;
mod delivery;
mod error;
mod failures;
mod from_fn;
mod host;
mod own;
mod pack;
mod redeliver;
mod segment;
mod serving;
mod subscription;

pub use behavior::{Behavior, Start};
pub use context::BehaviorContext;
pub use delivery::{Delivery, InvalidDeliveryId, delivery_id, read_delivery_id};
pub use error::BehaviorError;
pub use failures::{FailedDelivery, newest_failures};
pub use from_fn::{FnBehavior, behavior};
pub use host::{BehaviorHost, BehaviorHostBuilder, HostError};
pub use pack::PackBehaviors;
pub use redeliver::{RedeliverError, Redelivered};
pub use serving::Serving;
