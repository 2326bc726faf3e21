//! Tests of the client in its environment: other clients in the process, and servers that send
//! invalid responses.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::borrow::Cow;
use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::ops::ControlFlow;

use backstop_provider::{ModelRequest, ModelResponse, Provider, ProviderError};
use backstop_provider_http::{
    Draft, Endpoint, Events, FailureRule, HttpProvider, HttpProviderBuilder, Protocol,
    ProviderConfigError, Reply, SseEvent, Stream,
};
use backstop_testkit::{ClosedPort, Loopback, Reply as Sent};
use layer0::Failure;
use layer0::failure::Chain;
use layer0::message::{StopReason, Transcript};
use reqwest::Client;
use rustls::crypto::CryptoProvider;
use serde::Serialize;
use serde_json::json;

/// The smallest possible protocol. No request with it gets an answer.
#[derive(Debug, Default)]
struct Plain;

impl Protocol for Plain {
    const NAME: &'static str = "plain";
    const KEY_VARIABLE: &'static str = "PLAIN_API_KEY";
    const ROWS: &'static [FailureRule] = &[];
    type Framing = Events;
    type Response = String;
    type Stream = Pieces;

    fn base_url(&self) -> Result<Cow<'static, str>, ProviderConfigError> {
        Err(ProviderConfigError::missing_setting("base URL", "PLAIN_URL"))
    }

    fn path(&self, _model: &str, _is_streamed: bool) -> String {
        "/chat".to_owned()
    }

    fn request<'a>(
        &'a self,
        _endpoint: &'a Endpoint,
        _request: &'a ModelRequest,
        is_streamed: bool,
    ) -> Result<impl Serialize + 'a, ProviderError> {
        Ok(json!({ "stream": is_streamed }))
    }

    fn response(&self, text: String, reply: &Reply<'_>) -> Result<ModelResponse, ProviderError> {
        let mut draft = Draft::default();
        draft.text = text;
        Ok(draft.finish(StopReason::End, reply))
    }

    fn stream(&self) -> Pieces {
        Pieces::default()
    }
}

#[derive(Default)]
struct Pieces(Draft);

impl Stream for Pieces {
    type Frame = SseEvent;

    fn take(
        &mut self,
        event: SseEvent,
        reply: &Reply<'_>,
    ) -> Result<ControlFlow<()>, ProviderError> {
        self.0.say(&event.data, reply);
        Ok(ControlFlow::Continue(()))
    }

    fn held_bytes(&self) -> usize {
        self.0.held_bytes()
    }

    fn finish(self, reply: &Reply<'_>) -> Result<ModelResponse, ProviderError> {
        Ok(self.0.finish(StopReason::End, reply))
    }
}

fn open() -> HttpProvider<Plain> {
    open_at("https://127.0.0.1:9")
}

fn open_at(base_url: &str) -> HttpProvider<Plain> {
    HttpProviderBuilder::new("m").base_url(base_url).build().unwrap()
}

#[tokio::test]
async fn first_bytes_tell_a_stream_from_an_answer() {
    let provider = open();
    for (content_type, body, expected) in [
        ("application/json; charset=utf-8", r#""one""#, Ok("one")),
        ("application/json", "data: one\n\n", Ok("one")),
        ("text/event-stream", "data: one\n\ndata: two\n\n", Ok("onetwo")),
        ("text/event-stream", "[1]", Err("invalid type: sequence, expected a string")),
        ("application/json", "pardon?", Err("expected value")),
        ("text/event-stream", "pardon?", Ok("")),
        ("no header\ncarries this", "pardon?", Ok("")),
        ("text/html", "pardon?", Err("an HTML page instead of JSON")),
        ("text/html", "<html>", Err("an HTML page instead of JSON")),
        (
            "text/html; charset=utf-8",
            "\u{feff} [1]",
            Err("invalid type: sequence, expected a string"),
        ),
        ("text/html", "data: one\n\n", Ok("one")),
    ] {
        let read = provider.read(content_type, body).await;
        match (read, expected) {
            (Ok(response), Ok(text)) => assert_eq!(&*response.text, text, "{content_type} {body}"),
            (Err(error), Err(why)) => {
                let error = Chain(&error).to_string();
                assert!(error.contains(why), "{content_type} {body}: {error}");
            }
            (read, _) => panic!("{content_type} {body}: {read:?}"),
        }
    }
}

/// Spec: P7
#[tokio::test]
async fn streamed_answers_are_bounded_as_whole_ones() {
    let provider = open();
    // In two lines, so that each event is below half of the maximum.
    let event = format!("data: {}\n\n", "x".repeat(1024 * 1024));
    let wordy = format!(": {}\ndata: x\n\n", "x".repeat(1024 * 1024));
    assert!(provider.read("text/event-stream", event.repeat(31)).await.is_ok());
    assert_eq!(provider.read("text/event-stream", wordy.repeat(40)).await.unwrap().text.len(), 40);
    let error = provider.read("text/event-stream", event.repeat(34)).await.unwrap_err();
    assert!(matches!(error, ProviderError::InvalidResponse(_)), "{error}");
}

#[test]
fn default_base_url_is_the_providers_own() {
    let error = HttpProviderBuilder::<Plain>::new("m").build().unwrap_err();
    assert!(matches!(error, ProviderConfigError::MissingKey { .. }), "{error:?}");
    let error = HttpProviderBuilder::<Plain>::new("m").api_key("0123456789").build().unwrap_err();
    assert!(matches!(error, ProviderConfigError::MissingSetting { .. }), "{error:?}");
}

/// Returns whether the process has a default crypto provider; no test here sets one.
fn is_provider_installed() -> bool {
    CryptoProvider::get_default().is_some()
}

/// Spec: P8
#[test]
fn a_bare_client_is_built_after_ours() {
    assert!(!is_provider_installed());
    let _ours = open();
    assert!(!is_provider_installed());
    let _bare = Client::new();
    assert!(!is_provider_installed());
}

/// Spec: P8
#[test]
fn a_bare_client_is_built_before_ours() {
    assert!(!is_provider_installed());
    let _bare = Client::new();
    let _ours = open();
    assert!(!is_provider_installed());
}

/// Serves one connection: reads a little, writes this response, and closes it.
fn server(scheme: &str, answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("{scheme}://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(answer);
    });
    url
}

/// Spec: E7, E10
#[tokio::test]
async fn every_unanswered_request_has_a_hint() {
    let tls_alert: &[u8] = &[21, 3, 1, 0, 2, 2, 70];
    // Too long for any resolver.
    let unknown = format!("http://{}:1", "a".repeat(64));
    let closed = ClosedPort::bind();
    let banner: &[u8] = b"SSH-2.0-OpenSSH_9.9\r\n";
    for (base_url, expected) in [
        (closed.url(), "is it running? base_url is `{}/…/v1`"),
        (unknown, "check the host of base_url, which is `{}/…/v1`"),
        (
            server("https", banner),
            "it does not speak TLS there; a server without it needs `http://`",
        ),
        (server("http", banner), "it does not speak HTTP there; check the port of base_url"),
        (server("http", tls_alert), "a server with TLS needs `https://`"),
        (server("http", b""), "it closed the connection; check the port of base_url"),
        (server("https", b""), "a server without TLS needs `http://`"),
    ] {
        let provider = open_at(&format!("{base_url}/t0ken-1n-the-path/v1"));
        let request = ModelRequest::new(Transcript::default());
        let error = provider.complete(&request).await.unwrap_err();
        let (text, hint) = (Chain(&error).to_string(), error.hint().unwrap_or_default());
        assert_eq!(error.code(), "provider.transient", "{text}");
        let expected = expected.replace("{}", &base_url);
        assert!(hint.contains(&expected), "{text}: {hint}");
        assert!(hint.contains(&format!("`{base_url}/…/v1`")), "{hint}");
        for shown in [&text, &*hint, &format!("{error:?}"), &format!("{provider:?}")] {
            assert!(!shown.contains("t0ken"), "{shown}");
        }
    }
}

/// Spec: E7
#[tokio::test]
async fn compressed_answer_is_named() {
    let body = [0x1f, 0x8b, 8, 0];
    for (status, code) in [(200, "provider.invalid_response"), (401, "provider.auth_failed")] {
        let sent = Sent::new(status, "application/json", body).header("content-encoding", "gzip");
        let server = Loopback::replying([sent]);
        let request = ModelRequest::new(Transcript::default());
        let error = open_at(&server.url()).complete(&request).await.unwrap_err();
        assert_eq!(error.code(), code);
        assert!(Chain(&error).to_string().contains("is compressed with `gzip`"), "{error}");
        let asked = server.requests().pop().unwrap();
        assert_eq!(asked.header("accept-encoding"), Some("identity"));
    }
}

/// Spec: E7
#[tokio::test]
async fn repeated_path_is_a_matter_of_base_url() {
    let twice = |path: &str| {
        format!("`/{path}` is twice in the path that was asked: take it from the end of base_url")
    };
    for (path, expected) in [
        ("/v1/v1", twice("v1")),
        ("/api/api", twice("api")),
        ("/v1/chat/completions/chat/completions", twice("chat/completions")),
        ("/v1/messages/v1/messages", twice("v1/messages")),
        ("/v1", "is there a model `m`?".to_owned()),
        ("/chat/chat", "is there a model `m`?".to_owned()),
    ] {
        let server = Loopback::replying([Sent::new(404, "text/plain", "Not Found")]);
        let request = ModelRequest::new(Transcript::default());
        let provider = open_at(&format!("{}{path}", server.url()));
        let error = provider.complete(&request).await.unwrap_err();
        let hint = error.hint().unwrap_or_default();
        assert!(hint.contains(&expected), "{hint}");
    }
}

/// Spec: P7
#[tokio::test]
async fn reading_lets_other_tasks_run() {
    let provider = open();
    let ended = RefCell::new(Vec::new());
    let read = async {
        let body = "data: x\n\n".repeat(100_000);
        let answer = provider.read("text/event-stream", body).await.unwrap();
        assert_eq!(answer.text.len(), 100_000);
        ended.borrow_mut().push("the answer");
    };
    tokio::join!(read, async { ended.borrow_mut().push("another task") });
    assert_eq!(*ended.borrow(), ["another task", "the answer"]);
}
