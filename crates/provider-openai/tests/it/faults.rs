use backstop_testkit::{Loopback, Reply};

use super::ask::{ADAPTER, ask, hello, send, to};

/// Spec: P3
#[tokio::test]
async fn missing_end_marker_needs_a_setting() {
    let whole = String::from_utf8(ADAPTER.plain(true).body).unwrap();
    let no_done = whole.replace("data: [DONE]\n\n", "");
    let no_reason = no_done.replace("\"stop\"", "null");
    for (body, declared, expected) in [
        (&no_done, false, Some("stream ended before `[DONE]`")),
        (&no_done, true, None),
        (&no_reason, true, Some("stream ended before a finish reason")),
    ] {
        let server = Loopback::replying([Reply::events(body.as_str())]);
        let lenient = to(&server.url()).with(|it| it.omits_done(declared)).build().unwrap();
        let result = send(&lenient, &hello(), true).await;
        assert_eq!(result.err().map(|error| error.to_string()).as_deref(), expected);
    }
    let done_alone = whole.replace("\"stop\"", "null");
    let error = ask(Reply::events(done_alone), true).await.unwrap_err();
    assert_eq!(error.to_string(), "stream ended before a finish reason");
}
