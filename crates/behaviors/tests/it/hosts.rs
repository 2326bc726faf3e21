//! Several hosts on one log, and hosts that end during a delivery.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use backstop_behaviors::{BehaviorError, Serving, behavior};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use layer0::event::EventKind;

use super::{
    Seen, host, memory, noting, opened, places, record, settled, short_while, types, warn,
};

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

/// A failure that stops its host when its text is written: the delivery has ended, and that is not durable yet.
#[derive(Clone, Default)]
struct StopsHost {
    serving: Arc<Mutex<Option<Serving>>>,
    stopping: Arc<Mutex<Option<BoxFuture<'static, ()>>>>,
}

impl fmt::Display for StopsHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(serving) = self.serving.lock().unwrap().take() {
            let mut stopping = serving.stop().boxed();
            let polled = stopping.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending(), "it waits for this subscription");
            *self.stopping.lock().unwrap() = Some(stopping);
        }
        f.write_str("no desk")
    }
}

impl fmt::Debug for StopsHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StopsHost")
    }
}

impl std::error::Error for StopsHost {}

/// Spec: X2, X3
#[tokio::test(flavor = "multi_thread")]
async fn end_before_a_stop_is_recorded() {
    let (log, failure) = (memory(), StopsHost::default());
    let fails = failure.clone();
    let failing = behavior("b", "warning".parse().unwrap(), move |_, _| {
        let failure = fails.clone();
        async move { Err(BehaviorError::other(failure)) }
    });
    let serving = host(&log).behavior(failing).build().unwrap().serve();
    opened(&log, &["b"]).await;
    *failure.serving.lock().unwrap() = Some(serving);
    warn(&log, "run_1", 2).await;
    let stopping = loop {
        let stopping = failure.stopping.lock().unwrap().take();
        match stopping {
            Some(stopping) => break stopping,
            None => short_while().await,
        }
    };
    stopping.await;
    let events = record(&log, "b", 1).await;
    let ended = ["subscription.opened", "behavior.delivered", "behavior.failed"];
    assert_eq!(types(&events), ended);
    let seen = Seen::default();
    let next = host(&log).behavior(noting("b", "warning", &seen)).build().unwrap().serve();
    settled(&next).await;
    next.stop().await;
    assert_eq!(places(&seen), [("run_1".to_owned(), 2)], "what had ended is not made again");
}
