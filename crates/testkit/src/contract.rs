//! What an implementation of each trait has to keep.

pub mod adapter;
mod errors;
mod log;
mod provider;
mod results;
mod suite;

pub use errors::error_store_trials;
pub use log::event_log_conformance;
pub use provider::provider_conformance;
pub use results::result_store_trials;
pub use suite::{StoreTrial, error_store_conformance, result_store_conformance};
