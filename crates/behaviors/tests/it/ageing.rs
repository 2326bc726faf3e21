//! The age of a segment under a clock that is set.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use backstop_clock::{BoxFuture, Clock, SystemClock};
use layer0::Timestamp;

use super::{Seen, host, memory, noting, opened, places, settled, warn};

/// Longer than the greatest age of a segment.
const DAY_AND_HOUR_MS: i64 = 25 * 60 * 60 * 1_000;

/// The system's clock, whose time of day can be set.
#[derive(Debug, Default)]
struct SetClock(AtomicI64);

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        let now = SystemClock.now().as_millis() + self.0.load(Ordering::SeqCst);
        Timestamp::from_millis(now)
    }

    fn monotonic(&self) -> Duration {
        SystemClock.monotonic()
    }

    fn sleep(&self, wait: Duration) -> BoxFuture {
        SystemClock.sleep(wait)
    }
}

/// Spec: X4. The host that has a segment measures its age; the next one compares it with the time of day.
#[tokio::test(flavor = "multi_thread")]
async fn set_clock_rolls_no_segment_at_work() {
    let (log, seen, clock) = (memory(), Seen::default(), Arc::new(SetClock::default()));
    let serve = || {
        let host = host(&log).behavior(noting("b", "warning", &seen));
        host.clock(Arc::clone(&clock) as Arc<dyn Clock>).build().unwrap().serve()
    };
    let segment = async || log.subscription("b").await.unwrap().unwrap().segment;
    let serving = serve();
    opened(&log, &["b"]).await;
    for by in [DAY_AND_HOUR_MS, -DAY_AND_HOUR_MS, 60 * 60 * 1_000, -60 * 60 * 1_000] {
        clock.0.store(by, Ordering::SeqCst);
        warn(&log, &format!("run_{by}"), 1).await;
        settled(&serving).await;
        assert_eq!(segment().await, 1, "{by}");
    }
    serving.stop().await;
    for (by, expected) in [(-DAY_AND_HOUR_MS, 1), (DAY_AND_HOUR_MS, 2)] {
        clock.0.store(by, Ordering::SeqCst);
        let serving = serve();
        warn(&log, &format!("run_again_{by}"), 1).await;
        settled(&serving).await;
        serving.stop().await;
        assert_eq!(segment().await, expected, "{by}");
    }
    let runs: Vec<String> = places(&seen).into_iter().map(|(run, _)| run).collect();
    assert_eq!(runs.len(), 6, "each is delivered once: {runs:?}");
}
