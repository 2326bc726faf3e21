//! The facts of every provider failure.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::time::Duration;

use backstop_provider::{ProviderError, TimeoutPhase};
use layer0::code;
use layer0::failure::{Exhausted, Failure};

fn samples() -> Vec<ProviderError> {
    let hint = Some(Duration::from_secs(7));
    let last = ProviderError::transient("overloaded", Some(529));
    let exhausted = Exhausted::new(3, Duration::from_secs(4), last);
    vec![
        ProviderError::AuthFailed("bad key".into()),
        ProviderError::circuit_open(hint),
        ProviderError::content_blocked("no"),
        ProviderError::context_overflow("too long"),
        exhausted.into(),
        ProviderError::invalid_request("no such parameter", Some(400)),
        ProviderError::InvalidResponse("an HTML page".into()),
        ProviderError::not_found("no such model"),
        ProviderError::Other("odd".into()),
        ProviderError::quota_exhausted("no credit"),
        ProviderError::rate_limited("slow down", hint),
        ProviderError::rate_limited("slow down", None),
        ProviderError::stream_interrupted("connection reset"),
        ProviderError::stream_truncated("`[DONE]`"),
        ProviderError::timeout(TimeoutPhase::Connect, hint),
        ProviderError::timeout(TimeoutPhase::Upstream, None),
        ProviderError::transient("overloaded", Some(529)),
        ProviderError::transient("overloaded", Some(529)).with_retry_after(hint),
    ]
}

/// Spec: E2, E6, E9, E14
#[test]
fn every_variant_states_its_facts() {
    let rows: Vec<String> = samples()
        .iter()
        .map(|error| {
            let (retry, effect) = (format!("{:?}", error.retry()), format!("{:?}", error.effect()));
            assert_eq!(error.is_retryable(), error.retry().is_retryable());
            assert!(code::find(error.code()).is_some());
            let elsewhere = format!("{:?}", error.elsewhere());
            let counts = if error.counts_against() { "against" } else { "-" };
            let code = error.code();
            format!("{code:<28} {retry:<10} {effect:<8} {elsewhere:<12} {counts:<8} {error}")
        })
        .collect();
    insta::assert_snapshot!(rows.join("\n"));
    assert!(size_of::<ProviderError>() <= 64, "{}", size_of::<ProviderError>());
}
