//! Checks of several calls of one provider, and of the chunks of one call.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use backstop_provider::{ModelRequest, ScriptedAnswer, StreamSink};
use futures_util::future::join_all;
use layer0::message::{Message, Transcript};

use super::exchange::{add_judge, answer, calls, serve_replies};
use crate::server::{Ending, Heard, Loopback, hello, patient, send};
use crate::wire::{Cannot, Wire};

fn saying(text: &str) -> ScriptedAnswer {
    ScriptedAnswer::saying(text)
}

/// Text, thinking and calls belong to one answer only.
pub(super) async fn nothing_is_left_of_the_call_before(wire: Wire) {
    for streamed in wire.stream_modes() {
        let answers = [answer(&wire), calls(), saying("second"), calls(), saying("third")];
        let replies = answers.iter().map(|answer| wire.says(answer, streamed));
        let server = serve_replies(&wire, replies);
        let provider = (wire.provider)(&server.url(), patient());
        for answer in &answers {
            let heard = Arc::new(Heard::default());
            let sink = Arc::clone(&heard) as Arc<dyn StreamSink>;
            let request = hello().sink(sink);
            let said = send(&*provider, &request, streamed).await.expect("an answer");
            let text = answer.text.as_deref().unwrap_or_default();
            assert_eq!(&*said.text, text, "streamed: {streamed}");
            assert_eq!(said.tool_calls.len(), answer.tool_calls.len(), "streamed: {streamed}");
            let billed = [said.usage, answer.usage].map(Option::unwrap_or_default);
            assert_eq!(billed[0], billed[1], "streamed: {streamed}");
            if streamed {
                assert_eq!(heard.text(), text, "what is streamed is of this call");
            }
        }
    }
}

/// Each call requests a word of its own, and the server answers with it.
pub(super) async fn answers_go_to_their_callers(wire: Wire) {
    for streamed in wire.stream_modes() {
        let words = ["alpha", "bravo", "charlie", "delta", "echo", "foxtrot"];
        let server = Loopback::serving(move |request| {
            let asked = String::from_utf8_lossy(&request.bytes);
            let word = words.iter().find(|word| asked.contains(**word));
            wire.says(&saying(word.unwrap_or(&"nothing")), streamed)
        });
        let server = add_judge(&wire, server);
        let provider = (wire.provider)(&server.url(), patient());
        let asked = words.map(|word| {
            let mut messages = Transcript::default();
            messages.push(Message::user(word));
            let (request, provider) = (ModelRequest::new(messages), Arc::clone(&provider));
            async move { send(&*provider, &request, streamed).await }
        });
        for (said, word) in join_all(asked).await.into_iter().zip(words) {
            assert_eq!(&*said.expect("an answer").text, word, "streamed: {streamed}");
        }
    }
}

/// The first call hangs, and the second one is answered nevertheless.
pub(super) async fn calls_do_not_wait_for_each_other(wire: Wire) {
    for streamed in wire.stream_modes() {
        let count = AtomicUsize::new(0);
        let server = Loopback::serving(move |_| {
            let reply = wire.says(&saying("here"), streamed);
            match count.fetch_add(1, Ordering::Relaxed) {
                0 => reply.ending(Ending::HangBeforeHead),
                _ => reply,
            }
        });
        let server = add_judge(&wire, server);
        let provider = (wire.provider)(&server.url(), patient());
        let request = hello();
        let second = async {
            server.hangs(1).await;
            send(&*provider, &request, streamed).await
        };
        let said = tokio::select! {
            biased;
            result = send(&*provider, &request, streamed) => panic!("it hangs: {result:?}"),
            said = second => said,
        };
        assert_eq!(&*said.expect("an answer").text, "here", "streamed: {streamed}");
    }
}

/// Text that was sent is passed on while the server has more to send.
pub(super) async fn pieces_are_passed_on_as_they_come(wire: Wire) {
    if !wire.can(Cannot::Stream) {
        return;
    }
    let text = "one two three four ".repeat(50);
    let whole = wire.says(&saying(&text), true);
    let half = whole.body.len() / 2;
    let server = serve_replies(&wire, [whole.ending(Ending::HangAt(half))]);
    let heard = Arc::new(Heard::default());
    let sink = Arc::clone(&heard) as Arc<dyn StreamSink>;
    let request = hello().sink(sink);
    let provider = (wire.provider)(&server.url(), patient());
    let listening = async {
        while heard.text().is_empty() {
            tokio::task::yield_now().await;
        }
        heard.text()
    };
    let said = tokio::select! {
        biased;
        result = send(&*provider, &request, true) => panic!("it hangs: {result:?}"),
        said = listening => said,
    };
    assert!(text.starts_with(&said), "what is heard is what was said: {said}");
}
