//! Growing waits between attempts to connect.

use std::sync::Arc;
use std::time::Duration;

use backstop_clock::Clock;

/// First wait.
const FIRST: Duration = Duration::from_secs(1);
/// Longest wait; a connection that lasted as long counts as successful.
const LONGEST: Duration = Duration::from_secs(60);
/// Shortest wait that a server may ask for.
const SHORTEST: Duration = Duration::from_millis(100);

/// The waits before attempts to open something long-lived, such as a stream.
pub(crate) struct Backoff {
    clock: Arc<dyn Clock>,
    doubled: u32,
    /// Start of the last attempt, in monotonic time.
    began: Duration,
}

impl Backoff {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let began = clock.monotonic();
        Self { clock, doubled: 0, began }
    }

    /// Restarts with the first wait.
    pub(crate) const fn reset(&mut self) {
        self.doubled = 0;
    }

    /// Waits before the next attempt: first as long as the server asked for, then twice as long each time.
    pub(crate) async fn wait(&mut self, asked: Option<Duration>) {
        if self.clock.monotonic().saturating_sub(self.began) >= LONGEST {
            self.reset();
        }
        let first = asked.unwrap_or(FIRST).clamp(SHORTEST, LONGEST);
        let wait = first.saturating_mul(1 << self.doubled.min(16)).min(LONGEST);
        self.doubled = self.doubled.saturating_add(1);
        self.clock.sleep(wait).await;
        self.began = self.clock.monotonic();
    }
}

#[cfg(test)]
mod tests {
    use backstop_clock::VirtualClock;
    use layer0::Timestamp;

    use super::*;

    /// Spec: Q3
    #[tokio::test]
    async fn waits_grow_until_something_works() {
        let clock = VirtualClock::starting_at(Timestamp::default());
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let (done, ended) = tokio::sync::oneshot::channel();
        tokio::spawn(clock.track(Box::pin(async move {
            let mut backoff = Backoff::new(Arc::clone(&shared));
            let mut waits = Vec::new();
            let mut wait = async |backoff: &mut Backoff, asked| {
                let before = shared.monotonic();
                backoff.wait(asked).await;
                waits.push((shared.monotonic() - before).as_secs_f64());
            };
            for _ in 0..8 {
                wait(&mut backoff, None).await;
            }
            backoff.reset();
            wait(&mut backoff, Some(Duration::from_secs(7))).await;
            backoff.reset();
            wait(&mut backoff, Some(Duration::ZERO)).await;
            shared.sleep(Duration::from_secs(120)).await;
            wait(&mut backoff, None).await;
            let _ = done.send(waits);
        })));
        let waits = ended.await.unwrap();
        assert_eq!(waits, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 7.0, 0.1, 1.0]);
    }
}
