//! The choice of runs to remove.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod forgetting;
mod pages;
mod reasons;
mod shelf;
mod upkeep;
