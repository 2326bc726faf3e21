//! Walk through a folder, with counts of the skipped entries.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

mod filter;
mod skipped;

pub(crate) use filter::Filter;
pub(crate) use skipped::{Reason, Skipped};

/// Guard that ends a walk in a blocking task, which cannot be aborted, when its caller is dropped.
pub(crate) struct GiveUp(Arc<AtomicBool>);

/// Flag that a walk has to end.
#[derive(Clone)]
pub(crate) struct CancelFlag(Arc<AtomicBool>);

impl GiveUp {
    pub(crate) fn new() -> (Self, CancelFlag) {
        let flag = Arc::new(AtomicBool::new(false));
        (Self(Arc::clone(&flag)), CancelFlag(flag))
    }
}

impl Drop for GiveUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl CancelFlag {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Returns the path at which a walk failed.
pub(crate) fn failed_path(error: &ignore::Error) -> Option<&Path> {
    match error {
        ignore::Error::WithPath { path, .. } => Some(path),
        ignore::Error::WithDepth { err, .. } | ignore::Error::WithLineNumber { err, .. } => {
            failed_path(err)
        }
        _ => None,
    }
}
