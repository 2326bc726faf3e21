//! Scenarios and end-to-end tests of the whole.
//!
//! The scenarios are in `scenarios/`, to be read as documentation of what fails how; those in
//! `scenarios/failing/` must not pass, and show how a mismatch is reported.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod canary;
mod carried;
mod codes;
mod commits;
mod composition;
mod conversations;
mod defects;
mod facts;
mod format;
mod invariants;
#[cfg(unix)]
mod kill;
mod layers;
mod lines;
mod listeners;
mod load;
mod logs;
mod pages;
mod played;
mod recorded;
mod replayed;
mod rules;
mod scenarios;
mod shared;
mod story;
mod texts;
mod traced;
mod wire_page;
mod wires;
