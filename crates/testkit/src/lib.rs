//! What tests need and nothing ships: servers on loopback that answer, lie, hang and break off as
//! told, samples of every way a provider is known to fail, and the measuring of benchmarks.
//!
//! [`Loopback`] is a server with a plan: one [`Reply`] per request. [`ScriptedEndpoint`] serves
//! [`provider::ScriptedAnswer`]s as a real endpoint that speaks a provider's protocol. [`conformance`]
//! turns the rows of `wire/conformance.json` into replies. [`measure`] times things side by side.
//! [`event_log_conformance`] holds any event log against the contract, [`error_store_conformance`] any
//! error store, [`result_store_conformance`] any result store, [`provider_conformance`] any provider; [`adapter_suite!`] holds Backstop's own against more. [`Chaos`] fails by seed.
//!
//! It never listens beyond `127.0.0.1`, and it never passes over anything in silence: what a script
//! cannot say, or has not got, is answered with status 400 and the reason. Servers run on a thread
//! of their own, so that a test may block, and end when they are dropped.
//!
//! Start at [`ScriptedEndpoint`].

#![allow(
    clippy::missing_panics_doc,
    reason = "what tests call says by panicking what does not hold"
)]

pub mod adapter;
pub mod anthropic;
mod ask;
pub mod bedrock;
mod chaos;
pub mod conformance;
pub mod gemini;
mod http;
mod log_conformance;
mod loopback;
pub mod measure;
pub mod ollama;
pub mod openai;
mod provider_conformance;
mod reply;
pub mod responses;
mod scripted;
mod store_conformance;
mod wire;

pub use ask::{Heard, KEY, TOKEN, hello, send};
pub use chaos::Chaos;
pub use http::Request;
pub use log_conformance::event_log_conformance;
pub use loopback::Loopback;
pub use provider_conformance::provider_conformance;
pub use reply::{Ending, Reply};
pub use scripted::ScriptedEndpoint;
pub use store_conformance::{
    StoreTrial, error_store_conformance, error_store_trials, result_store_conformance,
    result_store_trials,
};
pub use wire::{Cannot, MakeProvider, Wire};
