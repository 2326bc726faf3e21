use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use backstop_event_log::Patterns;

use crate::behavior::{Behavior, Start};
use crate::context::BehaviorContext;
use crate::delivery::Delivery;
use crate::error::BehaviorError;

type Reaction = Pin<Box<dyn Future<Output = Result<(), BehaviorError>> + Send>>;

/// A behaviour from a closure; see [`behavior`].
pub struct FnBehavior {
    name: Arc<str>,
    patterns: Patterns,
    start: Start,
    timeout: Duration,
    attempts: u32,
    react: Box<dyn Fn(Delivery, BehaviorContext) -> Reaction + Send + Sync>,
}

/// Returns a behaviour that calls a closure. It starts at the current end of the log, and has 3 attempts of 30 seconds
/// each.
pub fn behavior<F>(
    name: impl Into<Arc<str>>,
    patterns: Patterns,
    react: impl Fn(Delivery, BehaviorContext) -> F + Send + Sync + 'static,
) -> FnBehavior
where
    F: Future<Output = Result<(), BehaviorError>> + Send + 'static,
{
    FnBehavior {
        name: name.into(),
        patterns,
        start: Start::Now,
        timeout: Duration::from_secs(30),
        attempts: 3,
        react: Box::new(move |delivery, context| Box::pin(react(delivery, context))),
    }
}

impl FnBehavior {
    /// Sets the position from which a new subscription reads.
    #[must_use]
    pub fn start(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// Sets the time limit of one attempt.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = limit;
        self
    }

    /// Sets the maximum number of attempts of a delivery; at least 1.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }
}

#[async_trait]
impl Behavior for FnBehavior {
    fn name(&self) -> &str {
        &self.name
    }

    fn patterns(&self) -> &Patterns {
        &self.patterns
    }

    fn start(&self) -> Start {
        self.start
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn attempts(&self) -> u32 {
        self.attempts
    }

    async fn on(
        &self,
        delivery: &Delivery,
        context: &BehaviorContext,
    ) -> Result<(), BehaviorError> {
        (self.react)(delivery.clone(), context.clone()).await
    }
}

impl fmt::Debug for FnBehavior {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FnBehavior").field("name", &self.name).finish_non_exhaustive()
    }
}
