//! Deliveries that are repeated on request.

use backstop_behaviors::{RedeliverError, Start};

use super::{Seen, host, memory, noting, places, settled, warn};

/// Spec: X3
#[tokio::test(flavor = "multi_thread")]
async fn redelivery_takes_only_what_is_shown() {
    let (log, seen) = (memory(), Seen::default());
    warn(&log, "run_1", 2).await;
    let make = |pattern: &str| {
        let shown = noting("b", pattern, &seen).start(Start::Start);
        host(&log).behavior(shown).build().unwrap()
    };
    let serving = make("warning[seq=2]").serve();
    settled(&serving).await;
    serving.stop().await;
    assert_eq!(places(&seen).len(), 1);
    for other in ["b/run_1/1", "b/run_1/3", "b/sub_b.1/1"] {
        let refused = make("warning[seq=2]").redeliver(other).await.unwrap_err();
        assert!(matches!(refused, RedeliverError::NotMatched { .. }), "{other}: {refused:?}");
    }
    assert_eq!(places(&seen).len(), 1, "nothing was delivered");
    // The event had been delivered, whatever the pattern is now.
    for pattern in ["warning[seq=2]", "run.failed"] {
        let done = make(pattern).redeliver("b/run_1/2").await.unwrap();
        assert!(done.result.is_ok() && done.was_completed, "{done:?}");
    }
    let first = make("warning").redeliver("b/run_1/3").await.unwrap();
    assert!(!first.was_completed, "it is the first delivery of this event");
}
