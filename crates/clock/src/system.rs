use std::time::{Duration, SystemTime, UNIX_EPOCH};

use layer0::Timestamp;

use crate::{BoxFuture, Clock};

/// The machine's own clock, sleeping on tokio's timer.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the time")]
    fn now(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
    }

    #[expect(clippy::disallowed_methods, reason = "this is the one place that sleeps")]
    fn sleep(&self, wait: Duration) -> BoxFuture {
        Box::pin(tokio::time::sleep(wait))
    }
}
