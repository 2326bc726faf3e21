//! A run as one HTML page: timeline, transcript, failures and every event.
//!
//! [`page`] puts the record of a run into a page that carries its own style and script, so that it opens from a disk,
//! from a mail or behind a firewall. The page holds the record as JSON; the script shows it as text.
//!
//! The page never asks a network for anything, and nothing that a model or a tool wrote is ever read
//! as markup.

#[cfg(test)]
mod contrast;
mod page;

pub use page::{Recorded, page};
