//! Scenarios and end-to-end tests of the whole.
//!
//! The scenarios are in `scenarios/`, to be read as documentation of what fails how; those in
//! `scenarios/failing/` must not pass, and show how a mismatch is reported.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod attempts;
mod canary;
// Snapshots of JSON are in the order that serde_json keeps.
#[cfg(not(feature = "unified-json"))]
mod carried;
mod codes;
mod commits;
mod composition;
mod conversations;
mod converted;
mod cut;
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
#[cfg(not(feature = "unified-json"))]
mod texts;
mod traced;
mod unified;
mod wire_page;
mod wires;
