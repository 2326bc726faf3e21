//! Delays and limits to the millisecond.

use super::*;

/// Spec: R4. The last delay ends with the deadline, or with the request's own time.
#[test]
fn delay_may_end_with_the_time() {
    let config = RetryConfig::new().base(Duration::ZERO);
    let policy = RetryPolicy::new(config, Arc::new(backstop_clock::SystemClock));
    // A hint below ten milliseconds is not spread.
    let hint = Duration::from_millis(5);
    let again = |elapsed_ms: u64, left_ms: Option<u64>| {
        let elapsed = Duration::from_millis(elapsed_ms);
        let mut tried = RetryContext::new(1, elapsed, true);
        tried.time_left = left_ms.map(Duration::from_millis);
        let busy = Stated(Facts::new("a", Retry::After(hint), Effect::None));
        policy.decide(&busy, tried) == RetryDecision::Again(hint)
    };
    assert!(again(119_995, None) && !again(119_996, None));
    assert!(again(0, Some(5)) && !again(0, Some(4)));
}

/// Spec: O5. A delay that this layer would wait for parks nothing, even if no attempt is left.
#[test]
fn short_hint_parks_nothing() {
    for (ms, parks) in [(1, false), (60_000, false), (60_001, true)] {
        let hint = Retry::After(Duration::from_millis(ms));
        let mut tried = RetryContext::new(3, Duration::ZERO, true);
        tried.max_park = Duration::from_secs(600);
        let decision = policy().decide(&Stated(Facts::new("a", hint, Effect::None)), tried);
        assert_eq!(matches!(decision, RetryDecision::Park(_)), parks, "{ms}: {decision:?}");
    }
}

/// Spec: R4. A limit that no other endpoint waits behind is not named.
#[test]
fn final_failure_is_not_limited() {
    let mut tried = RetryContext::new(1, Duration::ZERO, true);
    tried.max_attempts = Some(1);
    let decision = policy().decide(&Stated(Facts::never("a", Effect::None)), tried);
    assert_eq!(decision, RetryDecision::Stop { is_exhausted: false, is_limited: false });
}

/// Spec: R2
#[test]
fn seeded_jitter_repeats_the_delays() {
    let delays = || {
        let policy = policy().jitter(Jitter::from_seed(7));
        let busy = Stated(Facts::backoff("a", Effect::None));
        [1, 1, 2, 2]
            .map(|attempt| policy.decide(&busy, RetryContext::new(attempt, Duration::ZERO, true)))
    };
    assert_eq!(delays(), delays());
}
