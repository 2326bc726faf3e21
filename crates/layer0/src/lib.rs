//! The contract every other Backstop crate builds on.
//!
//! `layer0` defines failures ([`Failure`]: a stable code, whether trying again can help, whether it may already have
//! acted), names the parts of a run (ids, messages, events) and states the protocols ([`Operator`], [`Orchestrator`],
//! [`StateStore`], [`Environment`]).
//!
//! It never performs an effect: no runtime, no clock, no I/O, and it builds for `wasm32`.
//!
//! Start at [`failure`] for the facts, [`error`] for the four protocol errors and [`event`] for the
//! record a run leaves.

mod approvers;
pub mod code;
pub mod environment;
pub mod error;
pub mod event;
pub mod failure;
mod hex;
pub mod id;
mod json_text;
pub mod message;
mod millis;
pub mod name;
pub mod operator;
pub mod orchestrator;
pub mod state;
pub mod stop;
pub mod text;
pub mod time;
pub mod tool_spec;
pub mod usage;

pub use approvers::Approvers;
pub use code::Code;
pub use environment::Environment;
pub use failure::{Effect, Failure, Retry};
pub use hex::push_hex;
pub use json_text::{JsonText, TaggedText, is_deeper, read_tagged, read_value};
pub use operator::Operator;
pub use orchestrator::Orchestrator;
pub use state::{Scope, StateStore};
pub use time::Timestamp;
pub use tool_spec::ToolSpec;
