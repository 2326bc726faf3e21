//! What every error store and every result store has to hold, to be run against one's own.
//!
//! ```
//! use std::sync::Arc;
//!
//! use error_store::MemoryErrorStore;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! testkit::error_store_conformance(async || Arc::new(MemoryErrorStore::new()) as _).await;
//! # }
//! ```

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;

use error_store::{ErrorStore, ResultStore};
use futures_util::FutureExt;

use super::errors::error_store_trials;
use super::results::result_store_trials;

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One thing that a store has to hold. It panics where the store does not.
#[derive(Debug)]
pub struct StoreTrial<S: ?Sized> {
    /// What is held.
    pub name: &'static str,
    run: fn(Arc<S>) -> Running,
}

impl<S: ?Sized> StoreTrial<S> {
    pub(super) const fn new(name: &'static str, run: fn(Arc<S>) -> Running) -> Self {
        Self { name, run }
    }

    /// Tries it on an empty store.
    ///
    /// # Panics
    ///
    /// When the store does not hold it; the message says where.
    pub async fn run(&self, store: Arc<S>) {
        (self.run)(store).await;
    }
}

/// Tries everything on error stores, each on an empty one.
///
/// # Panics
///
/// When something fails; the message names all that failed.
pub async fn error_store_conformance(make: impl AsyncFn() -> Arc<dyn ErrorStore>) {
    all(&error_store_trials(), make).await;
}

/// Tries everything on result stores, each on an empty one.
///
/// # Panics
///
/// When something fails; the message names all that failed.
pub async fn result_store_conformance(make: impl AsyncFn() -> Arc<dyn ResultStore>) {
    all(&result_store_trials(), make).await;
}

async fn all<S: ?Sized>(trials: &[StoreTrial<S>], make: impl AsyncFn() -> Arc<S>) {
    let mut failed = Vec::new();
    for trial in trials {
        let store = make().await;
        if let Err(panic) = AssertUnwindSafe(trial.run(store)).catch_unwind().await {
            failed.push(format!("{}: {}", trial.name, text(&*panic)));
        }
    }
    assert!(failed.is_empty(), "the store fails:\n{}", failed.join("\n"));
}

fn text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a text")
}
