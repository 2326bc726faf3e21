//! The machine from outside.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod adopting;
mod approving;
mod asking;
mod below;
mod contracts;
mod copies;
mod crashes;
mod dispatching;
mod granting;
mod guards;
mod judge;
mod laws;
mod lost_tail;
mod parking;
mod reading;
mod recovering;
mod refusing;
mod reopening;
mod replaying;
mod requests;
mod rules;
mod script;
mod settling;
mod shares;
mod state;
mod turns;
mod wild;
mod world;
