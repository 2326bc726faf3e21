//! Checks of failures of a provider, and of their messages.

use layer0::failure::{Failure, Retry};
use layer0::message::StopReason;
use serde_json::json;

use super::Adapter;
use crate::contract::provider;
use crate::server::{Ending, KEY, Reply};
use crate::server::{all_of, shows_a_secret};

/// The checks of [`provider`], which hold for every provider.
///
/// Spec: P1, P3, P4, P7, P8
pub async fn it_keeps_the_contract_of_a_provider(adapter: &Adapter) {
    provider(adapter.wire).check().await;
}

/// The failures of [`Adapter::failures`], whole and byte by byte.
///
/// Spec: P2, P3, P4, P5, P6, P7, E10
pub async fn every_known_failure_is_what_the_table_says(adapter: &Adapter) {
    let samples = (adapter.failures)();
    assert!(!samples.is_empty(), "a provider that cannot fail is not known well enough");
    for sample in samples {
        sample.verdict(&adapter.wire).await;
    }
}

/// Pages for people, and the replies of [`Adapter::no_answers`].
///
/// Spec: P4
pub async fn what_is_no_answer_is_an_invalid_response(adapter: &Adapter) {
    let page = "an HTML page instead of JSON";
    let pages = [
        (Reply::html(200), false, page),
        (Reply::html(200), true, page),
        (Reply::new(200, "application/json", " <!doctype>"), false, page),
    ];
    for (reply, streamed, expected) in pages.into_iter().chain((adapter.no_answers)()) {
        let error = adapter.wire.ask(reply, streamed).await.expect_err(expected);
        assert_eq!(error.to_string(), format!("invalid response: {expected}"));
        assert_eq!(error.retry(), Retry::Backoff, "{expected}");
    }
}

/// Failures that repeat the key, and the replies of [`Adapter::repeating`].
///
/// Spec: E10
pub async fn no_error_shows_the_key(adapter: &Adapter) {
    let told = format!("Incorrect API key provided: {KEY}.\nAsk for another one.");
    let error = json!({ "error": { "message": told, "type": told, "status": told, "code": told } });
    let replies = [
        Reply::json(401, &error),
        Reply::json(499, &error),
        Reply::json(503, &error),
        Reply::new(500, "text/plain", told.as_str()),
        Reply::json(200, &error),
        Reply::json(307, &error).header("location", format!("http://127.0.0.1/{KEY}")),
        Reply::html(200).ending(Ending::CloseAt(3)),
    ];
    for reply in replies.into_iter().chain((adapter.repeating)(&told, &error)) {
        let context = String::from_utf8_lossy(&reply.body).into_owned();
        let (shown, line) = match adapter.wire.ask(reply, true).await {
            Err(error) => (all_of(&error), error.to_string()),
            // The repeated text is the stop reason.
            Ok(answer) => {
                let word = answer.stop_reason.as_str().to_owned();
                assert!(matches!(answer.stop_reason, StopReason::Unknown(_)), "{context}");
                (word.clone(), word)
            }
        };
        assert!(!shows_a_secret(&shown), "{context}: {shown}");
        assert!(!line.contains('\n'), "{context}");
    }
    let shown = (adapter.shown)();
    assert!(!shows_a_secret(&shown), "{shown}");
}
