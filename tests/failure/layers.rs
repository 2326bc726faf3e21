//! What the layers around a provider make of each failure, and that no other layer tries again.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use backstop::{
    AgentBuilder, OpenAi, Provider, RetryConfig, ScriptedAnswer, ScriptedProvider, Upstream,
};
use backstop_clock::VirtualClock;
use backstop_provider::ErrorKind;
use backstop_testkit::{Ending, Loopback, Reply, hello};
use serde_json::json;

use crate::support::wires::OPENAI;

fn says(text: &str) -> Reply {
    let answer = ScriptedAnswer::saying(text);
    OPENAI.wire.says(&answer, true)
}

fn fails(kind: ErrorKind) -> Reply {
    OPENAI.wire.says(&ScriptedAnswer::failing(kind), true)
}

fn upstream(server: &Loopback) -> Upstream {
    let openai = OpenAi::new("m").base_url(format!("{}/v1", server.url())).build().unwrap();
    let clock = VirtualClock::starting_at(Default::default());
    Upstream::on_clock(Arc::new(openai), Arc::new(clock))
}

fn once(agent: AgentBuilder) -> AgentBuilder {
    agent.retry(RetryConfig::new().attempts(1))
}

/// Who was told to slow down was answered.
///
/// Spec: R7
#[tokio::test]
async fn rate_limits_do_not_open_the_circuit() {
    let (busy, slow) = (|| fails(ErrorKind::Transient), || fails(ErrorKind::RateLimited));
    let patience = backstop::retry::BreakerConfig::default().failures as usize;
    let mut replies: Vec<_> = (0..2 * patience).map(|_| slow()).collect();
    // One short of what opens it, and then again: the one between begins the count anew.
    replies.extend((1..patience).map(|_| busy()).chain([slow()]));
    replies.extend((1..patience).map(|_| busy()).chain([says("up again")]));
    let count = replies.len();
    let server = Loopback::replying(replies);
    let agent = once(AgentBuilder::on(upstream(&server))).build().unwrap();
    for asked in 1..count {
        let failure = agent.run("?").await.unwrap_err();
        assert_ne!(failure.code(), "provider.circuit_open", "call {asked}");
    }
    assert_eq!(agent.run("?").await.unwrap().text(), "up again");
    assert_eq!(server.count(), count);
}

/// What another provider may do better, and what it would refuse just the same, for every code.
///
/// Spec: R7
#[tokio::test]
async fn next_provider_is_asked_where_it_may_help() {
    let text = says("half of a long answer");
    let half = text.body.len() / 2;
    let mut codes = BTreeSet::new();
    for (code, goes_on, reply) in [
        ("provider.auth_failed", false, fails(ErrorKind::AuthFailed)),
        ("provider.content_blocked", false, fails(ErrorKind::ContentBlocked)),
        ("provider.context_overflow", true, fails(ErrorKind::ContextOverflow)),
        ("provider.invalid_request", false, fails(ErrorKind::InvalidRequest)),
        ("provider.invalid_response", true, fails(ErrorKind::InvalidResponse)),
        ("provider.not_found", false, Reply::json(404, &json!({}))),
        ("provider.quota_exhausted", true, fails(ErrorKind::QuotaExhausted)),
        ("provider.rate_limited", true, fails(ErrorKind::RateLimited)),
        ("provider.stream_interrupted", true, text.clone().ending(Ending::ResetAt(half))),
        ("provider.stream_truncated", true, fails(ErrorKind::StreamTruncated)),
        ("provider.timeout", true, fails(ErrorKind::Timeout)),
        ("provider.transient", true, fails(ErrorKind::Transient)),
    ] {
        let server = Loopback::replying([reply.clone(), reply]);
        let first = || AgentBuilder::on(upstream(&server));
        check(first, code, goes_on).await;
        codes.insert(code);
    }

    let server = Loopback::serving(|_| Reply::html(503));
    let down = upstream(&server);
    let retry = RetryConfig::new().base(std::time::Duration::from_millis(0)).attempts(5);
    AgentBuilder::on(down.clone()).retry(retry).build().unwrap().run("?").await.unwrap_err();
    check(|| AgentBuilder::on(down.clone()), "provider.circuit_open", true).await;
    codes.insert("provider.circuit_open");

    let over = || AgentBuilder::from_shared(Arc::new(ScriptedProvider::new(Vec::new())));
    check(over, "provider.other", false).await;
    codes.insert("provider.other");

    let known = layer0::code::CATALOGUE.iter().map(|entry| entry.code);
    assert_eq!(codes, known.filter(|code| code.starts_with("provider.")).collect());
}

/// Asks twice: alone, to see the code, and with another to fall back to.
async fn check(first: impl Fn() -> AgentBuilder, code: &str, goes_on: bool) {
    let alone = once(first()).build().unwrap().run("?").await.unwrap_err();
    assert_eq!(alone.code(), code);
    let server = Loopback::replying([says("from the other")]);
    let agent = once(first()).fallback_on(upstream(&server)).build().unwrap();
    let result = agent.run("?").await;
    assert_eq!(server.count(), usize::from(goes_on), "{code}: is another asked?");
    match result {
        Ok(outcome) => assert_eq!(outcome.text(), "from the other", "{code}"),
        Err(failure) => assert_eq!((failure.code(), goes_on), (code, false)),
    }
}

/// A connection that is kept is closed by the server when it is used again, and a fresh one before
/// the answer: what was sent is not sent again.
///
/// Spec: R9
#[tokio::test]
async fn broken_connection_is_not_retried_when_it_carried() {
    for answers in [0, 1, 2] {
        let server = Fickle::answering(answers);
        let openai = OpenAi::new("m").base_url(&server.url).build().unwrap();
        let mut failures = 0;
        for asked in 1..=12 {
            if let Err(error) = openai.complete(&hello()).await {
                assert!(error.is_retryable(), "{error:?}");
                failures += 1;
            }
            assert_eq!(server.requests.load(Ordering::SeqCst), asked, "one request for each call");
            // A connection is kept as soon as its task sees that the answer has ended.
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
        }
        let connections = server.connections.load(Ordering::SeqCst);
        assert!(failures > 0, "a connection was used again: {connections} connections");
        assert!(connections <= 12, "no connection without a call: {connections}");
    }
}

/// A server that keeps a connection for so many answers, then takes a request and closes it.
struct Fickle {
    url: String,
    connections: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
}

impl Fickle {
    fn answering(answers: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let (connections, requests) =
            (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (accepted, read) = (Arc::clone(&connections), Arc::clone(&requests));
        // Ends with the process.
        thread::spawn(move || {
            for stream in listener.incoming() {
                accepted.fetch_add(1, Ordering::SeqCst);
                let read = Arc::clone(&read);
                thread::spawn(move || serve(stream.unwrap(), answers, &read));
            }
        });
        Self { url, connections, requests }
    }
}

fn serve(mut stream: TcpStream, answers: usize, requests: &AtomicUsize) {
    let body = OPENAI.wire.says(&ScriptedAnswer::default(), false).body;
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut answered = 0;
    while read_request(&mut reader) {
        requests.fetch_add(1, Ordering::SeqCst);
        if answered == answers {
            return;
        }
        answered += 1;
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(&[head.as_bytes(), &body].concat()).unwrap();
    }
}

/// Reads one request; `false` where the client has closed the connection.
fn read_request(reader: &mut BufReader<TcpStream>) -> bool {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return false;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line == "\r\n" {
            return reader.read_exact(&mut vec![0; length]).is_ok();
        }
    }
}
