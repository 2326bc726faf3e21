//! Tools for tests, which no release contains: servers on loopback that answer, lie, hang and break off by script,
//! samples of every known failure of a provider, and measurements for benchmarks.
//!
//! [`Loopback`] is a server with a plan: one [`Reply`] per request. [`ScriptedEndpoint`] serves
//! [`backstop_provider::ScriptedAnswer`]s as a real endpoint with a provider's protocol. [`failures`] turns the rows of
//! `wire/conformance.json` into replies. [`measure`] compares times. [`contract`] checks implementations of Backstop's
//! traits against their contracts, and [`adapter_suite!`] its own adapters against more. [`Chaos`] fails by seed.
//!
//! It never listens on other addresses than `127.0.0.1`, and it never ignores anything silently: a script that cannot
//! be sent, or that has ended, is answered with status 400 and the reason. Servers run on a thread of their own, so
//! that a test may block, and end when they are dropped.
//!
//! Start at [`ScriptedEndpoint`].

#![cfg_attr(docsrs, feature(doc_cfg))]
#![allow(
    clippy::missing_panics_doc,
    reason = "what tests call says by panicking what does not hold"
)]

mod chaos;
pub mod contract;
pub mod failures;
pub mod measure;
mod own_process;
#[cfg(all(unix, feature = "postgres"))]
mod postgres;
mod server;
mod steady;
pub mod strict;
mod tape;
mod wire;

pub use chaos::Chaos;
pub use own_process::is_own_process;
#[cfg(all(unix, feature = "postgres"))]
pub use postgres::{DatabasesInTurn, POSTGRES_VARIABLE, Pooler, PostgresServer};
pub use server::{
    ClosedPort, Ending, Heard, KEY, Loopback, Relay, Reply, Request, ScriptedEndpoint, TOKEN,
    hello, send,
};
pub use steady::SteadyLog;
pub use tape::{Tape, append_all};
pub use wire::{Cannot, MakeProvider, Wire, anthropic, bedrock, gemini, ollama, openai, responses};
