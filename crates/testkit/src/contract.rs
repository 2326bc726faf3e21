//! Contracts of implementations of each trait, as [`Suite`]s of named [`Trial`]s.

pub mod adapter;
mod approvals;
mod dropped;
mod errors;
mod feed;
mod log;
mod memory;
mod operator;
mod orchestrator;
mod provider;
mod removal;
mod results;
mod start_keys;
mod state;
mod subscriptions;
mod suite;
mod takeover;
mod tool;
mod transcripts;

pub use approvals::approvals;
pub use errors::error_store;
pub use feed::feed;
pub use log::{erasable_event_log, event_log, reopened_event_log};
pub use memory::memory;
pub use operator::{OperatorSample, operator};
pub use orchestrator::orchestrator;
pub use provider::provider;
pub use removal::{RemovalStore, RunQueue, removals};
pub use results::result_store;
pub use start_keys::start_keys;
pub use state::state_store;
pub use subscriptions::subscriptions;
pub use suite::{FailedTrial, Open, Suite, Trial};
pub use takeover::{ActingRun, Ledger, TwoProcesses, takeovers};
pub use tool::{ToolSample, tool};
pub use transcripts::transcripts;
