//! The agent through its real path: scripted model, real retry stack, real tools, real stores.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod bench;
mod durable;
mod errors;
mod hooks;
mod model;
mod parts;
mod record;
mod tools;
mod typed;
