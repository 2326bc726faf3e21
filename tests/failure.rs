//! What fails, and where it lands.

mod attempts;
mod canary;
mod composition;
mod cut;
mod invariants;
mod layers;
mod load;
mod pools;
pub(crate) mod resumed;
mod rows;
mod scenarios;
mod shared;
mod stopping;
mod takeovers;
mod texts;
mod traced;
mod trees;
