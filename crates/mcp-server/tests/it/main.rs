//! A server through real clients: over streams and over HTTP.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod agents;
mod bench;
mod calls;
mod conformance;
mod connections;
mod keys;
mod lost_tail;
mod one_run;
mod over_http;
