//! A run as one HTML page: timeline, transcript, failures and every event.
//!
//! [`page`] puts the record of a run into a page with its own style and script, so that it opens from a disk, from a
//! mail or behind a firewall. The page contains the record as JSON; the script shows it as text.
//!
//! The page never requests anything from a network, and text from a model or a tool is never read as markup.

#[cfg(test)]
mod contrast;
mod page;

pub use page::{RecordedRun, page};
