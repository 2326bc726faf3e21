//! Workers on a real PostgreSQL server.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod drain;
mod queue;
mod support;
mod work;
