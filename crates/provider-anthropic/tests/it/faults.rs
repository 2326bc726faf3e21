use backstop_provider::ScriptedAnswer;
use backstop_testkit::Reply;
use layer0::failure::Failure;

use super::ask::{ADAPTER, ask};

/// Returns the stream of an answer.
fn whole() -> String {
    let answer = ScriptedAnswer::saying("one two three");
    String::from_utf8(ADAPTER.wire.says(&answer, true).body).unwrap()
}

/// Spec: P3
#[tokio::test]
async fn stream_without_a_stop_reason_is_truncated() {
    let body = whole().replace("\"end_turn\"", "null");
    let error = ask(Reply::events(body), true).await.unwrap_err();
    assert_eq!(error.to_string(), "stream ended before a stop reason");
}

#[tokio::test]
async fn piece_of_an_unopened_block_is_invalid() {
    let body = whole()
        .replace(
            "\"index\":0,\"type\":\"content_block_delta\"",
            "\"index\":3,\"type\":\"content_block_delta\"",
        )
        .replace("\"type\":\"content_block_start\"", "\"type\":\"of_tomorrow\"");
    let error = ask(Reply::events(body), true).await.unwrap_err();
    assert_eq!(error.code(), "provider.invalid_response", "{error:?}");
}
