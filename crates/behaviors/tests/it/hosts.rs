//! Several hosts on one log, and hosts that end during a delivery.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use backstop_behaviors::behavior;
use layer0::event::EventKind;

use super::{Seen, host, memory, noting, opened, places, record, settled, short_while, warn};

/// Spec: X2
#[tokio::test(flavor = "multi_thread")]
async fn another_host_takes_over() {
    let (log, here, there) = (memory(), Seen::default(), Seen::default());
    let first = host(&log).behavior(noting("b", "warning", &here)).build().unwrap().serve();
    opened(&log, &["b"]).await;
    let second = host(&log).behavior(noting("b", "warning", &there)).build().unwrap().serve();
    warn(&log, "run_1", 3).await;
    settled(&first).await;
    settled(&second).await;
    assert_eq!((places(&here).len(), places(&there).len()), (3, 0));
    first.stop().await;
    warn(&log, "run_1", 2).await;
    while places(&there).len() < 2 {
        short_while().await;
    }
    settled(&second).await;
    second.stop().await;
    assert_eq!(places(&there), [("run_1".to_owned(), 4), ("run_1".to_owned(), 5)]);
}

/// Spec: X2. What was open is delivered again under its id; what had ended is not.
#[tokio::test(flavor = "multi_thread")]
async fn open_delivery_is_made_again() {
    let (log, seen) = (memory(), Seen::default());
    let is_stuck = Arc::new(AtomicBool::new(true));
    let make = || {
        let (seen, is_stuck) = (Arc::clone(&seen), Arc::clone(&is_stuck));
        behavior("b", "warning".parse().unwrap(), move |delivery, _| {
            let (seen, is_stuck) = (Arc::clone(&seen), Arc::clone(&is_stuck));
            async move {
                seen.lock().unwrap().push(delivery.clone());
                // The first run is stuck at its second event; the other one continues.
                if is_stuck.load(Ordering::SeqCst)
                    && (delivery.run.as_str(), delivery.seq) == ("run_1", 3)
                {
                    std::future::pending::<()>().await;
                }
                Ok(())
            }
        })
    };
    let first = host(&log).behavior(make()).build().unwrap().serve();
    opened(&log, &["b"]).await;
    warn(&log, "run_1", 3).await;
    warn(&log, "run_2", 3).await;
    while places(&seen).len() < 5 {
        short_while().await;
    }
    // The ends of the other run's deliveries are durable.
    while record(&log, "b", 1).await.len() < 1 + 5 + 4 {
        short_while().await;
    }
    first.stop().await;
    let stands = log.subscription("b").await.unwrap().unwrap();
    assert_eq!(stands.positions.get("run_2"), Some(&4));
    is_stuck.store(false, Ordering::SeqCst);
    let second = host(&log).behavior(make()).build().unwrap().serve();
    settled(&second).await;
    second.stop().await;
    let mut all = places(&seen);
    all.sort();
    let expected = [("run_1", 1), ("run_1", 2), ("run_1", 2), ("run_1", 3)];
    let expected = expected.into_iter().chain((1..=3).map(|seq| ("run_2", seq)));
    let expected: Vec<_> = expected.map(|(run, seq)| (run.to_owned(), seq)).collect();
    assert_eq!(all, expected);
    let seen = seen.lock().unwrap().clone();
    let twice: Vec<_> = seen.iter().filter(|it| it.id == "b/run_1/3").collect();
    assert_eq!(twice.len(), 2);
    assert_eq!(twice[0].event, twice[1].event);
    assert!(log.subscription("b").await.unwrap().unwrap().positions.is_empty());
    let events = record(&log, "b", 1).await;
    let ends = events.iter().filter(|event| matches!(event.kind, EventKind::BehaviorCompleted(_)));
    assert_eq!(ends.count(), 6, "each end is recorded once");
}
