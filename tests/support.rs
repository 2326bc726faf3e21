//! What several tests need.

pub(crate) mod lines;
pub(crate) mod pages;
pub(crate) mod played;
pub(crate) mod story;
pub(crate) mod wires;
