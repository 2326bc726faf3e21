//! Workers on a real PostgreSQL server.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod clock_steps;
mod drain;
mod lost_lock;
mod lost_tail;
mod outage;
mod panics;
mod place;
mod queue;
mod ready;
mod support;
mod takeover;
mod turns;
mod work;
