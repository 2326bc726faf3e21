//! Scenarios and end-to-end tests of the whole.
//!
//! The scenarios are in `scenarios/`, to be read as documentation of what fails how; those in
//! `scenarios/failing/` must not pass, and show how a mismatch is reported.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod contract;
mod durability;
mod failure;
mod others;
mod support;
