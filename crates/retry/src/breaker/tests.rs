use super::*;

use backstop_clock::VirtualClock;
use layer0::Timestamp;
use layer0::error::{OperatorError, OrchError};
use layer0::failure::Chain;

fn breaker() -> (Breaker, VirtualClock) {
    let clock = VirtualClock::starting_at(Timestamp::default());
    let config = BreakerConfig { failures: 3, open_for: Duration::from_secs(10) };
    (Breaker::new(config, Arc::new(clock.clone())), clock)
}

fn record(breaker: &Breaker, result: Result<(), OrchError>) -> Result<(), CircuitOpen> {
    breaker.admit().map(|permit| permit.record(&result))
}

fn transient() -> Result<(), OrchError> {
    Err(OperatorError::Retryable("busy".into()).into())
}

fn mistake() -> Result<(), OrchError> {
    Err(OrchError::OperatorNotFound("x".into()))
}

fn refused_for(breaker: &Breaker) -> Option<u64> {
    breaker.admit().err().map(|open| open.retry_after.as_secs())
}

fn open(breaker: &Breaker) {
    (0..3).for_each(|_| record(breaker, transient()).unwrap());
    assert!(refused_for(breaker).is_some());
}

async fn pass(clock: &VirtualClock, seconds: u64) {
    let (waiter, (done, waited)) = (clock.clone(), tokio::sync::oneshot::channel());
    tokio::spawn(clock.track(Box::pin(async move {
        waiter.sleep(Duration::from_secs(seconds)).await;
        let _ = done.send(());
    })));
    waited.await.unwrap();
}

/// Spec: R7
#[tokio::test]
async fn breaker_opens_after_failures_and_probes_once() {
    let (breaker, clock) = breaker();
    for result in [transient(), transient(), Ok(()), transient(), transient()] {
        record(&breaker, result).unwrap();
    }
    record(&breaker, transient()).unwrap();
    assert_eq!(refused_for(&breaker), Some(10));
    pass(&clock, 4).await;
    assert_eq!(refused_for(&breaker), Some(6));
    pass(&clock, 6).await;
    let probe = breaker.admit().unwrap();
    assert!(breaker.admit().is_err(), "one probe at a time");
    probe.record(&transient());
    assert!(breaker.admit().is_err(), "it is open again");
    pass(&clock, 10).await;
    record(&breaker, Ok(())).unwrap();
    for _ in 0..3 {
        record(&breaker, transient()).expect("it was closed");
    }
    assert!(breaker.admit().is_err());
}

/// Spec: R7
#[tokio::test]
async fn the_callers_mistakes_do_not_open_it() {
    let (breaker, _) = breaker();
    for _ in 0..5 {
        record(&breaker, transient()).unwrap();
        record(&breaker, transient()).unwrap();
        record(&breaker, mistake()).unwrap();
    }
}

#[tokio::test]
async fn a_probe_that_is_dropped_leaves_its_place() {
    let (breaker, clock) = breaker();
    (0..3).for_each(|_| record(&breaker, transient()).unwrap());
    pass(&clock, 10).await;
    drop(breaker.admit().unwrap());
    record(&breaker, Ok(())).unwrap();
    record(&breaker, Ok(())).unwrap();
}

/// Spec: R7
#[tokio::test]
async fn stragglers_neither_close_nor_open_it() {
    for straggler in [Ok(()), mistake(), transient()] {
        let (breaker, clock) = breaker();
        let before = [(); 4].map(|()| breaker.admit().unwrap());
        let [first, second, third, fourth] = before;
        open(&breaker);
        first.record(&straggler);
        assert_eq!(refused_for(&breaker), Some(10), "open");
        pass(&clock, 10).await;
        let probe = breaker.admit().unwrap();
        second.record(&straggler);
        assert_eq!(refused_for(&breaker), Some(10), "one probe is on its way");
        probe.record(&transient());
        assert_eq!(refused_for(&breaker), Some(10), "the probe failed");
        pass(&clock, 10).await;
        record(&breaker, Ok(())).unwrap();
        (0..2).for_each(|_| record(&breaker, transient()).unwrap());
        third.record(&straggler);
        assert_eq!(refused_for(&breaker), None, "two failures and a straggler");
        record(&breaker, transient()).unwrap();
        assert_eq!(refused_for(&breaker), Some(10), "three failures in a row");
        drop(fourth);
        assert_eq!(refused_for(&breaker), Some(10));
    }
}

/// Spec: R7
#[tokio::test]
async fn the_time_of_day_does_not_move_it() {
    for by_ms in [-86_400_000, 86_400_000] {
        let (breaker, clock) = breaker();
        open(&breaker);
        clock.set_time_of_day(by_ms);
        assert_eq!(refused_for(&breaker), Some(10));
        pass(&clock, 9).await;
        assert_eq!(refused_for(&breaker), Some(1));
        pass(&clock, 1).await;
        record(&breaker, Ok(())).unwrap();
    }
}

/// Spec: R7, E7
#[tokio::test]
async fn a_refusal_names_the_last_real_failure() {
    let (breaker, clock) = breaker();
    open(&breaker);
    let refusal = |breaker: &Breaker| Chain(&breaker.admit().unwrap_err()).to_string();
    assert_eq!(refusal(&breaker), "circuit is open for 10s: operator failed: busy");
    pass(&clock, 10).await;
    let probe = breaker.admit().unwrap();
    assert_eq!(refusal(&breaker), "circuit is open for 10s: operator failed: busy");
    probe.record(&Err::<(), OrchError>(OperatorError::Retryable("still busy".into()).into()));
    assert_eq!(refusal(&breaker), "circuit is open for 10s: operator failed: still busy");
}
