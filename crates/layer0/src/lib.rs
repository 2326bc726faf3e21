//! The contract on which every other Backstop crate builds.
//!
//! `layer0` defines failures ([`Failure`]: a stable code, whether trying again can help, whether the attempt may have
//! acted), the parts of a run (ids, messages, events), and the protocols ([`Operator`], [`Orchestrator`],
//! [`StateStore`], [`Environment`]).
//!
//! The crate never performs an effect: it has no runtime, clock or I/O, and builds for `wasm32`.
//!
//! Start with [`failure`] for the facts of errors, [`error`] for the four protocol errors, and [`event`] for the record
//! of a run.

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
