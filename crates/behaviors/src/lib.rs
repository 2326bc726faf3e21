//! Code that reacts to recorded events, live and after a restart.
//!
//! A [`Behavior`] has [`Patterns`](backstop_event_log::Patterns) of events and code that runs for each matching event;
//! a [`BehaviorHost`] delivers each event once, with a named cursor in the log. Deliveries and their results are
//! recorded in a record of their own.
//!
//! A behaviour never changes or delays the run that it reacts to: hooks do that.
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
