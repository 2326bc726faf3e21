//! The port of a log with subscriptions.

use async_trait::async_trait;

use crate::{LogError, Subscription};

/// Keeps the state of subscriptions. Appends with [`Batch::moves`](crate::Batch::moves) change it.
#[async_trait]
pub trait Subscriptions: Send + Sync {
    /// Returns the state of a subscription, as the appends moved it; `None` if there is none with this name.
    ///
    /// # Errors
    ///
    /// As [`Log::summary`](crate::Log::summary).
    async fn subscription(&self, name: &str) -> Result<Option<Subscription>, LogError>;

    /// Lists the subscriptions, by name. The positions of runs may be left out.
    ///
    /// # Errors
    ///
    /// As [`Subscriptions::subscription`].
    async fn subscriptions(&self) -> Result<Vec<Subscription>, LogError>;
}
