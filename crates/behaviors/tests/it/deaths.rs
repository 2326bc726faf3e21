//! Deliveries during which the process dies.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use backstop_behaviors::{FnBehavior, Start, behavior};
use backstop_event_log::EventLog;
use layer0::event::{BehaviorFailed, EventKind};

use super::troubled::Troubled;
use super::{Seen, host, memory, places, record, settled, short_while, warn};

/// A behaviour that records its events, and hangs at some of them.
fn hanging(name: &str, at: &'static [(&'static str, u64)], seen: &Seen) -> FnBehavior {
    let seen = Arc::clone(seen);
    let hanging = behavior(name, "warning".parse().unwrap(), move |delivery, _| {
        let seen = Arc::clone(&seen);
        async move {
            let event = (delivery.run.to_string(), delivery.seq);
            seen.lock().unwrap().push(delivery);
            if at.iter().any(|(run, seq)| (*run, *seq) == (&*event.0, event.1)) {
                std::future::pending::<()>().await;
            }
            Ok(())
        }
    });
    hanging.start(Start::Start)
}

/// Serves until this many deliveries were begun, and ends; by a death if the next host takes the subscription over.
async fn serve_until(
    log: &Arc<dyn EventLog>,
    at: &'static [(&'static str, u64)],
    begun: usize,
) -> Vec<(String, u64)> {
    let seen = Seen::default();
    let serving = host(log).behavior(hanging("b", at, &seen)).build().unwrap().serve();
    while places(&seen).len() < begun {
        short_while().await;
    }
    serving.stop().await;
    let mut begun = places(&seen);
    begun.sort();
    begun
}

async fn failures(log: &Arc<dyn EventLog>) -> Vec<BehaviorFailed> {
    let events = record(log, "b", 1).await.into_iter();
    let failed = events.filter_map(|event| match event.kind {
        EventKind::BehaviorFailed(failed) => Some(failed),
        _ => None,
    });
    failed.collect()
}

/// Spec: X3
#[tokio::test(flavor = "multi_thread")]
async fn delivery_is_set_aside_after_three_deaths() {
    let troubled = Troubled::new(memory());
    let log = Arc::clone(&troubled) as Arc<dyn EventLog>;
    warn(&log, "run_1", 2).await;
    let poison = &[("run_1", 2)];
    serve_until(&log, poison, 1).await;
    // That host stopped normally; the next three die.
    for _ in 0..3 {
        serve_until(&log, poison, 1).await;
        troubled.is_takeover.store(true, Ordering::SeqCst);
    }
    let seen = Seen::default();
    let serving = host(&log).behavior(hanging("b", poison, &seen)).build().unwrap().serve();
    settled(&serving).await;
    serving.stop().await;
    assert_eq!(places(&seen), [("run_1".to_owned(), 2)], "what follows is delivered");
    let failed = failures(&log).await.remove(0);
    assert_eq!((&*failed.run.to_string(), failed.seq, failed.attempts), ("run_1", 2, 3));
    assert_eq!((failed.reason.as_str(), &*failed.exception_type), ("behavior.failed", "CrashLoop"));
    let deaths = record(&log, "b", 1).await.into_iter().filter_map(|event| match event.kind {
        EventKind::BehaviorDelivered(delivered) if delivered.seq == 2 => Some(delivered.deaths),
        _ => None,
    });
    assert_eq!(deaths.collect::<Vec<_>>(), [0, 0, 1, 2]);
}

/// Spec: X3. A host that stops lets go of what it has in progress.
#[tokio::test(flavor = "multi_thread")]
async fn stops_are_no_deaths() {
    let log = memory();
    warn(&log, "run_1", 1).await;
    for _ in 0..5 {
        assert_eq!(serve_until(&log, &[("run_1", 2)], 1).await.len(), 1);
    }
    assert_eq!(failures(&log).await, []);
}

/// Spec: X3. Of several deliveries that were in progress, one is to blame.
#[tokio::test(flavor = "multi_thread")]
async fn last_chance_of_a_delivery_is_alone() {
    let troubled = Troubled::new(memory());
    let log = Arc::clone(&troubled) as Arc<dyn EventLog>;
    warn(&log, "run_1", 1).await;
    warn(&log, "run_2", 1).await;
    let both = &[("run_1", 2), ("run_2", 2)];
    for _ in 0..2 {
        assert_eq!(serve_until(&log, both, 2).await.len(), 2);
        troubled.is_takeover.store(true, Ordering::SeqCst);
    }
    // The first delivery is to blame.
    assert_eq!(serve_until(&log, &[("run_1", 2)], 1).await, [("run_1".to_owned(), 1)]);
    let seen = Seen::default();
    let serving = host(&log).behavior(hanging("b", &[], &seen)).build().unwrap().serve();
    settled(&serving).await;
    serving.stop().await;
    assert_eq!(places(&seen), [("run_2".to_owned(), 1)]);
    let failed = failures(&log).await;
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].run, "run_1".into());
}

/// Spec: X2. What is in progress goes on while the log cannot be read.
#[tokio::test(flavor = "multi_thread")]
async fn locked_read_begins_no_delivery_again() {
    let troubled = Troubled::new(memory());
    let log = Arc::clone(&troubled) as Arc<dyn EventLog>;
    warn(&log, "run_1", 1).await;
    let (begun, gate) = (Seen::default(), Arc::new(tokio::sync::Semaphore::new(0)));
    let (seen, open) = (Arc::clone(&begun), Arc::clone(&gate));
    let gated = behavior("b", "warning".parse().unwrap(), move |delivery, _| {
        let (seen, open) = (Arc::clone(&seen), Arc::clone(&open));
        async move {
            seen.lock().unwrap().push(delivery);
            open.acquire().await.unwrap().forget();
            Ok(())
        }
    });
    let serving = host(&log).behavior(gated.start(Start::Start)).build().unwrap().serve();
    while places(&begun).is_empty() {
        short_while().await;
    }
    troubled.locked_reads.store(1, Ordering::SeqCst);
    warn(&log, "run_2", 1).await;
    while places(&begun).len() < 2 {
        short_while().await;
    }
    gate.add_permits(10);
    settled(&serving).await;
    serving.stop().await;
    assert_eq!(troubled.locked_reads.load(Ordering::SeqCst), 0, "a read was refused");
    let both = [("run_1".to_owned(), 1), ("run_2".to_owned(), 1)];
    assert_eq!(places(&begun), both, "each was begun once");
}

/// Spec: X5. A record is read once, however many causes it names.
#[tokio::test(flavor = "multi_thread")]
async fn record_of_many_causes_is_read_once() {
    use backstop_event_log::{RunWriter, Seed};
    use layer0::Timestamp;
    use layer0::event::{Actor, Cause, SignalReceived, Warning};

    let troubled = Troubled::new(memory());
    let log = Arc::clone(&troubled) as Arc<dyn EventLog>;
    warn(&log, "run_1", 0).await;
    let run = "run_1".into();
    let summary = log.summary(&run).await.unwrap().unwrap();
    let claim = log.claim(&run).await.unwrap();
    let mut writer = RunWriter::resume(Arc::clone(&log), summary, claim);
    for number in 1..=40 {
        let mut signal = SignalReceived::new("told", number.into());
        signal.cause = Some(Box::new(Cause::new("other", "run_0", number, 1)));
        for kind in [signal.into(), Warning::new("noted").into()] {
            writer.stage(&Seed::new("s"), Timestamp::default(), Actor::Runtime, None, kind);
        }
    }
    drop(writer.commit().await.unwrap());
    let lengths = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&lengths);
    let counting = behavior("b", "warning".parse().unwrap(), move |delivery, _| {
        kept.lock().unwrap().push(delivery.seq);
        async { Ok(()) }
    });
    let serving = host(&log).behavior(counting.start(Start::Start)).build().unwrap().serve();
    settled(&serving).await;
    serving.stop().await;
    assert_eq!(lengths.lock().unwrap().len(), 40);
    let read = std::mem::take(&mut *troubled.read.lock().unwrap());
    let whole = read.iter().filter(|(run, from)| *run == "run_1".into() && *from == 1).count();
    assert_eq!(whole, 1, "{read:?}");
    let events = record(&log, "b", 1).await.into_iter();
    let chains = events.filter_map(|event| match event.kind {
        EventKind::BehaviorDelivered(delivered) => Some(delivered.length),
        _ => None,
    });
    assert!(chains.into_iter().all(|length| length == 2), "each has its cause");
}
