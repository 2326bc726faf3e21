//! The facts of every provider failure.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::time::Duration;

use backstop_provider::recorded::RecordedFailure;
use backstop_provider::{ProviderError, TimeoutPhase};
use layer0::code;
use layer0::failure::{Chain, ErrorText, Exhausted, Failure, chain};

/// A rate limit of one endpoint, and the refused key of another.
fn several() -> ProviderError {
    let mut error = ProviderError::rate_limited("slow down", Some(Duration::from_secs(7)));
    error.keep_beside(&ErrorText::from_error(&ProviderError::AuthFailed("bad key".into())));
    error
}

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
        several(),
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

/// Spec: R7, E7, E8
#[test]
fn every_variant_keeps_the_failures_of_others() {
    let texts = ["down", "reset"].map(str::to_owned);
    let earlier = ErrorText::from_chain(texts).unwrap();
    for (mut error, before) in samples().into_iter().zip(samples()) {
        let (facts, own) = (before.facts(), chain(&before));
        error.keep_earlier(&earlier);
        error.keep_earlier(&earlier);
        assert_eq!((error.facts(), error.status()), (facts, before.status()), "{before}");
        let mut expected = own;
        let is_refusal = matches!(before, ProviderError::CircuitOpen { .. });
        let link = || ["another provider failed before", "down", "reset"].map(str::to_owned);
        // A refusal without a cause takes the earlier failure as its cause.
        expected.extend(link().into_iter().skip(usize::from(is_refusal)));
        expected.extend(link());
        assert_eq!(chain(&error), expected);
        let recorded = RecordedFailure::from(&error);
        let again = ProviderError::from(&recorded);
        assert_eq!(Chain(&again).to_string(), Chain(&error).to_string());
        assert_eq!(RecordedFailure::from(&again), recorded);
    }
}

/// A replayed run counts tokens as the recorded one did.
///
/// Spec: B1
#[tokio::test]
async fn recording_keeps_who_reports_all_usage() {
    use backstop_provider::{ModelRequest, Provider, RecordedProvider, ScriptedProvider};
    let script = ScriptedProvider::saying(["42"]);
    let recording = RecordedProvider::recording(std::sync::Arc::new(script), ToOwned::to_owned);
    recording.complete(&ModelRequest::new(Default::default())).await.unwrap();
    let lines = recording.to_json_lines();
    let replaying = |lines: &str| RecordedProvider::replaying(lines, ToOwned::to_owned).unwrap();
    assert!(recording.reports_all_usage() && replaying(&lines).reports_all_usage());
    // A line from before the field was recorded.
    let older = lines.replace(",\"reports_all_usage\":true", "");
    assert!(older != lines && !replaying(&older).reports_all_usage());
}
