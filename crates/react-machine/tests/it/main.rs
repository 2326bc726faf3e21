//! The machine from outside.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod guards;
mod laws;
mod turns;
mod world;
