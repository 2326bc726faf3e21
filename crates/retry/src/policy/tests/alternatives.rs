//! Decisions with another endpoint of the same model.

use super::*;

/// A failure that another endpoint of the same model may avoid, which is free now.
fn decide(facts: Facts, change: impl FnOnce(&mut RetryContext)) -> RetryDecision {
    let mut tried = RetryContext::new(1, Duration::ZERO, true);
    tried.is_another_free = true;
    change(&mut tried);
    policy().decide(&Stated(facts), tried)
}

fn refused() -> Facts {
    Facts::never("a", Effect::None).with_beside(true)
}

const BUSY: Facts = Facts::backoff("a", Effect::None);

/// Spec: R7. It is called if this one refuses, or has no options left.
#[test]
fn free_endpoint_of_the_model_comes_first() {
    assert_eq!(decide(refused(), |_| ()), RetryDecision::Beside);
    assert_eq!(decide(BUSY, |tried| tried.attempts = 3), RetryDecision::Beside);
    assert!(matches!(decide(BUSY, |_| ()), RetryDecision::Again(_)), "this one has an option");
    let mistake = decide(Facts::never("a", Effect::None), |_| ());
    assert!(matches!(mistake, RetryDecision::Stop { .. }), "it would refuse too: {mistake:?}");
    let none = decide(refused(), |tried| tried.is_another_free = false);
    assert!(matches!(none, RetryDecision::Stop { .. }), "{none:?}");
}

/// Spec: R7. Whether a request is answered does not depend on the order of the providers behind the first.
#[test]
fn refusal_of_a_fallback_leads_to_the_next() {
    let at_fallback = |facts, has_left| {
        decide(facts, |tried| {
            (tried.is_another_free, tried.has_next, tried.has_left) = (false, true, has_left);
        })
    };
    let next = RetryDecision::Next { is_exhausted: false };
    let stays = refused();
    assert_eq!(at_fallback(stays, true), next);
    assert_ne!(at_fallback(stays, false), next, "the first provider's key is the caller's mistake");
    let mistake = Facts::never("a", Effect::None);
    assert_ne!(at_fallback(mistake, true), next, "the request would be refused there too");
}

/// Spec: R4. What may have acted is repeated nowhere.
#[test]
fn unknown_effect_is_repeated_nowhere() {
    let acted = |change: fn(&mut RetryContext)| {
        let hint = Retry::After(Duration::from_secs(300));
        let facts = Facts::new("a", hint, Effect::Unknown).with_beside(true);
        decide(facts, |tried| {
            tried.is_idempotent = false;
            change(tried);
        })
    };
    for change in [
        (|_| ()) as fn(&mut RetryContext),
        |tried| tried.has_next = true,
        |tried| tried.another_in = Some(Duration::from_secs(1)),
        |tried| tried.max_park = Duration::from_secs(600),
    ] {
        let decision = acted(change);
        assert!(matches!(decision, RetryDecision::Stop { .. }), "{decision:?}");
    }
}

/// Spec: R4
#[test]
fn free_endpoint_is_called_within_the_limits() {
    let at = |ms| decide(refused(), |tried| tried.elapsed = Duration::from_millis(ms));
    assert_eq!(at(120_000), RetryDecision::Beside);
    assert!(matches!(at(120_001), RetryDecision::Stop { .. }), "past the deadline");
    let limited = RetryDecision::Stop { is_exhausted: false, is_limited: true };
    assert_eq!(decide(refused(), |tried| tried.max_attempts = Some(1)), limited);
    let spent = decide(BUSY, |tried| {
        (tried.attempts, tried.total, tried.max_attempts) = (3, 3, Some(3));
    });
    assert_eq!(spent, RetryDecision::Stop { is_exhausted: true, is_limited: true });
}

/// Spec: R4, R7
#[test]
fn free_endpoint_is_waited_for_within_the_limits() {
    let wait = |facts: Facts, ms: u64, time_left: Option<u64>| {
        let mut tried = RetryContext::new(1, Duration::ZERO, true);
        tried.another_in = Some(Duration::from_millis(ms));
        tried.time_left = time_left.map(Duration::from_millis);
        match policy().decide(&Stated(facts), tried) {
            RetryDecision::Again(wait) => Some(wait >= Duration::from_millis(ms)),
            _ => None,
        }
    };
    assert_eq!(wait(refused(), 60_000, None), Some(true));
    assert_eq!(wait(refused(), 60_001, None), None, "longer than a requested delay may be");
    assert_eq!(wait(refused(), 60_000, Some(59_999)), None, "the request has less time");
    assert_eq!(wait(Facts::never("a", Effect::None), 1, None), None, "it would refuse too");
}
