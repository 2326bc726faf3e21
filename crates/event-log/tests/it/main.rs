//! Tests of the public interface of this crate.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod claiming;
mod folding;
mod matches;
mod mistakes;
mod patterns;
mod selecting;
mod stuck;
