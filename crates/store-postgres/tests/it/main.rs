//! Log and stores on a real PostgreSQL server.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod crashes;
mod fencing;
mod following;
mod opening;
mod removal;
mod support;
mod suites;
