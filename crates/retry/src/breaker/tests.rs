use super::*;

use backstop_clock::VirtualClock;
use layer0::Timestamp;
use layer0::error::{OperatorError, OrchError};
use layer0::failure::Chain;
use std::sync::Mutex;
use tower::{Layer, Service, ServiceExt};

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
#[test]
fn defaults_are_five_failures_and_half_a_minute() {
    let clock = Arc::new(VirtualClock::starting_at(Timestamp::default()));
    let breaker = Breaker::new(BreakerConfig::new(), clock.clone());
    (0..5).for_each(|_| record(&breaker, transient()).expect("fewer than five failed"));
    assert_eq!(refused_for(&breaker), Some(30));
    let breaker = Breaker::new(BreakerConfig::new().failures(0), clock);
    record(&breaker, transient()).unwrap();
    assert_eq!(refused_for(&breaker), Some(30), "at least one failure opens it");
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
async fn dropped_call_shows_nothing() {
    let (breaker, clock) = breaker();
    let straggler = breaker.admit().unwrap();
    drop(breaker.admit().unwrap());
    let together = [breaker.admit(), breaker.admit()];
    assert!(together.iter().all(Result::is_ok), "it is closed");
    drop(together);
    open(&breaker);
    pass(&clock, 10).await;
    let probe = breaker.admit().unwrap();
    drop(straggler);
    assert_eq!(refused_for(&breaker), Some(1), "the probe is still running");
    probe.record(&Ok::<_, OrchError>(()));
    assert_eq!(refused_for(&breaker), None);
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
        assert_eq!(refused_for(&breaker), Some(1), "one probe is on its way");
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
    assert_eq!(refusal(&breaker), "circuit is open for 1s: operator failed: busy");
    probe.record(&Err::<(), OrchError>(OperatorError::Retryable("still busy".into()).into()));
    assert_eq!(refusal(&breaker), "circuit is open for 10s: operator failed: still busy");
}

/// A failure of the slow endpoint, or of its breaker.
#[derive(Debug, thiserror::Error)]
enum Slow {
    #[error("down")]
    Down,
    #[error("refused")]
    Refused(#[from] CircuitOpen),
}

impl Failure for Slow {
    fn facts(&self) -> layer0::failure::Facts {
        let facts = layer0::failure::Facts::backoff("test.slow", layer0::failure::Effect::None);
        facts.with_counts_against(matches!(self, Self::Down))
    }
}

type Answer = std::pin::Pin<Box<dyn Future<Output = Result<(), Slow>> + Send>>;

/// Returns a service behind the breaker that accepts one call at a time, each for ten seconds,
/// after which it fails; and the number of its calls.
fn slow_endpoint(
    breaker: &Breaker,
    clock: &VirtualClock,
) -> (impl Service<(), Response = (), Error = Slow, Future: Send> + Clone + use<>, Arc<Mutex<u32>>)
{
    let asked = Arc::new(Mutex::new(0));
    let (counted, clock) = (Arc::clone(&asked), clock.clone());
    let endpoint = tower::service_fn(move |()| -> Answer {
        *counted.lock().unwrap() += 1;
        let clock = clock.clone();
        Box::pin(async move {
            clock.sleep(Duration::from_secs(10)).await;
            Err(Slow::Down)
        })
    });
    let limited = tower::limit::GlobalConcurrencyLimitLayer::new(1).layer(endpoint);
    (breaker.clone().layer().layer(limited), asked)
}

async fn call(
    clock: &VirtualClock,
    service: impl Service<(), Response = (), Error = Slow, Future: Send> + Send + 'static,
) -> tokio::sync::oneshot::Receiver<&'static str> {
    let (done, result) = tokio::sync::oneshot::channel();
    tokio::spawn(clock.track(Box::pin(async move {
        let error = service.oneshot(()).await.unwrap_err();
        let _ = done.send(error.code());
    })));
    result
}

/// Spec: R7
#[tokio::test]
async fn queued_call_asks_the_circuit_again() {
    let clock = VirtualClock::starting_at(Timestamp::default());
    let config = BreakerConfig::new().failures(2).open_for(Duration::from_secs(3_600));
    let breaker = Breaker::new(config, Arc::new(clock.clone()));
    let (service, asked) = slow_endpoint(&breaker, &clock);
    let mut calls = Vec::new();
    for _ in 0..20 {
        calls.push(call(&clock, service.clone()).await);
    }
    for call in calls {
        call.await.unwrap();
    }
    assert_eq!(*asked.lock().unwrap(), 2, "those behind them were refused");
    assert_eq!(clock.monotonic(), Duration::from_secs(20));
}

/// Spec: R7
#[tokio::test]
async fn refused_call_waits_for_no_place() {
    let (breaker, clock) = breaker();
    open(&breaker);
    let busy = tower::limit::ConcurrencyLimit::with_semaphore(
        tower::service_fn(|()| std::future::ready(Err::<(), _>(Slow::Down))),
        Arc::new(tokio::sync::Semaphore::new(0)),
    );
    let mut refused = call(&clock, breaker.layer().layer(busy)).await;
    tokio::task::yield_now().await;
    assert_eq!(refused.try_recv(), Ok("test.slow"), "no place is free, and none is needed");
}

/// Spec: R7
#[tokio::test]
async fn call_waiting_for_a_place_is_no_probe() {
    let clock = VirtualClock::starting_at(Timestamp::default());
    let config = BreakerConfig::new().failures(1).open_for(Duration::from_secs(5));
    let breaker = Breaker::new(config, Arc::new(clock.clone()));
    let (service, asked) = slow_endpoint(&breaker, &clock);
    let (time, done) = (clock.clone(), tokio::sync::oneshot::channel());
    tokio::spawn(clock.track(Box::pin(async move {
        // The first call takes the place, and the failure of another opens the circuit.
        let first = call(&time, service.clone()).await;
        time.sleep(Duration::from_secs(1)).await;
        record(&breaker, transient()).unwrap();
        time.sleep(Duration::from_secs(6)).await;
        let waiting = call(&time, service.clone()).await;
        time.sleep(Duration::from_secs(1)).await;
        let probe = breaker.admit().expect("nobody is on the way");
        probe.record(&Ok::<_, OrchError>(()));
        first.await.unwrap();
        waiting.await.unwrap();
        let _ = done.0.send(());
    })));
    done.1.await.unwrap();
    assert_eq!(*asked.lock().unwrap(), 2);
}

/// Spec: R7
#[tokio::test]
async fn probe_is_waited_for_its_own_time() {
    let (breaker, clock) = breaker();
    open(&breaker);
    pass(&clock, 10).await;
    let probe = breaker.admit().unwrap();
    assert_eq!(refused_for(&breaker), Some(1));
    pass(&clock, 4).await;
    assert_eq!(refused_for(&breaker), Some(4));
    pass(&clock, 40).await;
    assert_eq!(refused_for(&breaker), Some(10), "no longer than it stays open");
    drop(probe);
}
