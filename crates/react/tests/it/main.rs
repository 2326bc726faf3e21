//! The agent through its real path: scripted model, real retry stack, real tools, real stores.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod bench;
mod budgets;
mod build;
mod decisions;
mod cancelling;
mod context;
mod durable;
mod episodes;
mod errors;
mod expiry;
mod histories;
mod history;
mod forks;
mod hooks;
mod limits;
mod model;
mod outside;
mod parking;
mod parts;
mod pools;
mod proposals;
mod refused;
mod record;
mod sessions;
mod settings;
mod settling;
mod status;
mod stores;
mod stream;
mod timing;
mod secrets;
mod tools;
mod tree;
mod typed;
