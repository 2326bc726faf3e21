//! Tests of the public interface of this crate.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod batches;
mod claiming;
mod contract;
mod describing;
mod folding;
mod lines;
mod matches;
mod mistakes;
mod naming;
mod patterns;
mod recording;
mod selecting;
mod states;
mod stuck;
mod verifying;
mod waiting;
