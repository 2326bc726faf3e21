//! Checks that roles and the order of calls are sent, and nothing that is not for the endpoint.

use std::sync::Arc;

use layer0::message::Message;

use super::asked::{called, result, sent};
use super::exchange::{answer, serve_replies};
use crate::server::{hello, patient, send};
use crate::wire::Wire;

/// A model that reads its own words as those of a person, or instructions as a question, answers another conversation.
pub(super) async fn roles_are_sent(wire: Wire) {
    // An endpoint may refuse two messages of a person in a row.
    let wire = wire.judged_as(None);
    let conversations = [
        ("system", [Message::system("saidonce"), Message::user("go on")]),
        ("assistant", [Message::assistant("saidonce", Arc::default()), Message::user("go on")]),
    ];
    for streamed in wire.stream_modes() {
        for (role, messages) in conversations.clone() {
            let by_user = [Message::user("saidonce"), Message::user("go on")];
            let [own, other] = [messages, by_user].map(|messages| {
                let begin = [Message::user("hello")].into_iter().filter(|_| role != "system");
                begin.chain(messages).collect::<Vec<_>>()
            });
            let own = sent(&wire, own, streamed).await.body;
            let other = sent(&wire, other, streamed).await.body;
            assert_ne!(own, other, "the {role}'s message is sent as a person's: {own}");
        }
    }
}

pub(super) async fn calls_are_sent_in_their_order(wire: Wire) {
    for streamed in wire.stream_modes() {
        let results = [result("call_1", "one"), result("call_2", "two")];
        let sent = sent(&wire, called(results), streamed).await;
        let body = String::from_utf8_lossy(&sent.bytes);
        let [first, second] = ["\"first\"", "\"second\""].map(|name| body.find(name));
        assert!(first < second, "calls are sent in their order (streamed: {streamed}): {body}");
    }
}

/// The endpoint is another company's.
pub(super) async fn runs_are_not_named_to_the_endpoint(wire: Wire) {
    for streamed in wire.stream_modes() {
        let server = serve_replies(&wire, [wire.says(&answer(&wire), streamed)]);
        let provider = (wire.provider)(&server.url(), patient());
        let said = send(&*provider, &hello().run("runofthecaller".into()), streamed).await;
        said.unwrap_or_else(|error| panic!("a request of a run (streamed: {streamed}): {error}"));
        let sent = server.requests().swap_remove(0);
        let text = format!("{} {:?} {}", sent.path, sent.headers, sent.body);
        assert!(!text.contains("runofthecaller"), "the run is sent (streamed: {streamed}): {text}");
    }
}
