//! Checks that failures have their class and usage, and no secret.

use backstop_provider::{ErrorKind, ProviderError, ScriptedAnswer, ScriptedError};
use layer0::failure::Failure;
use serde_json::json;

use super::exchange::{ask, billed};
use crate::server::{KEY, Reply};
use crate::server::{all_of, shows_a_secret};
use crate::wire::{Cannot, Wire};

pub(super) async fn failures_are_what_they_were(wire: Wire) {
    let wire = &wire;
    let kinds = [
        ErrorKind::Transient,
        ErrorKind::RateLimited,
        ErrorKind::InvalidRequest,
        ErrorKind::ContentBlocked,
        ErrorKind::AuthFailed,
        ErrorKind::InvalidResponse,
        ErrorKind::ContextOverflow,
        ErrorKind::QuotaExhausted,
        ErrorKind::Timeout,
        ErrorKind::StreamTruncated,
    ];
    let at_the_start = kinds.map(|kind| (kind, None));
    let midway = kinds.map(|kind| (kind, Some("half an ans")));
    for (kind, text) in at_the_start.into_iter().chain(midway) {
        let is_said = text.is_none() || wire.can(Cannot::FailMidway(kind));
        if !wire.can(Cannot::Fail(kind)) || !is_said {
            continue;
        }
        let script = failing(kind, text);
        let expected = script.error.as_ref().map(ProviderError::from).expect("it fails");
        for streamed in wire.stream_modes() {
            let reply = wire.says(&script, streamed);
            let status = reply.status;
            let (result, heard) = ask(wire, reply, streamed).await;
            match result {
                Ok(_) => panic!("{kind:?} is no answer (streamed: {streamed})"),
                Err(error) => {
                    let at = format!("{kind:?} (streamed: {streamed}): {error:?}");
                    assert_eq!(error.code(), expected.code(), "{at}");
                    assert_eq!(error.retry(), expected.retry(), "{at}");
                    assert_eq!(error.effect(), expected.effect(), "{at}");
                    assert_eq!(heard.statuses(), [status], "the sink is told the status: {at}");
                }
            }
        }
    }
}

/// Billed tokens count, also for an answer that breaks off.
///
/// Spec: R8
pub(super) async fn tokens_of_a_failure_are_heard(wire: Wire) {
    let wire = &wire;
    if !wire.can(Cannot::BillFailures) || !wire.can(Cannot::Stream) {
        return;
    }
    let failing = failing(ErrorKind::Transient, Some("half"));
    let script = failing.usage(billed(wire));
    let (result, heard) = ask(wire, wire.says(&script, true), true).await;
    assert!(result.is_err(), "a failure is no answer");
    assert_eq!(heard.usage().last(), Some(&billed(wire)), "the sink is told what a failure cost");
}

/// A server may repeat parts of the request.
///
/// Spec: E10
pub(super) async fn no_error_shows_the_key(wire: Wire) {
    let wire = &wire;
    let told = format!("Incorrect API key provided: {KEY}. Ask for another one.");
    let error = json!({ "message": told, "type": told, "code": told, "status": told });
    let whole = json!({ "type": "error", "error": error, "message": told });
    let mut replies = vec![
        Reply::json(307, &whole).header("location", format!("http://127.0.0.1/{KEY}")),
        Reply::json(200, &whole),
        Reply::new(500, "text/plain", told.as_str()),
        Reply::new(502, "text/html", format!("<html>{told}</html>")),
    ];
    let statuses = [400, 401, 403, 404, 413, 429, 499, 500, 503, 529];
    replies.extend(statuses.map(|status| Reply::json(status, &whole)));
    for reply in replies {
        for streamed in wire.stream_modes() {
            let at = format!("status {} (streamed: {streamed})", reply.status);
            let (result, _) = ask(wire, reply.clone(), streamed).await;
            let error = result.err().unwrap_or_else(|| panic!("a failure is no answer: {at}"));
            let shown = all_of(&error);
            assert!(!shows_a_secret(&shown), "an error shows the key: {at}: {shown}");
        }
    }
}

/// Returns an answer that fails, optionally after some text.
fn failing(kind: ErrorKind, text: Option<&str>) -> ScriptedAnswer {
    let mut error = ScriptedError::new(kind);
    error.retry_after_ms = Some(250);
    let mut answer = ScriptedAnswer::default().error(error);
    answer.text = text.map(Into::into);
    answer
}
