//! The machine from outside.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod adopting;
mod asking;
mod below;
mod copies;
mod granting;
mod guards;
mod judge;
mod laws;
mod lost_tail;
mod parking;
mod rules;
mod script;
mod settling;
mod shares;
mod turns;
mod wild;
mod world;
