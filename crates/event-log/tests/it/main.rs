//! What this crate shows of itself.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod matches;
mod mistakes;
mod patterns;
mod stuck;
