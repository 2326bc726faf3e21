//! Requests to real servers on the loopback, by names that are resolved here.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use backstop_builtin_tools::{HttpFetch, Resolve};
use backstop_testkit::{ClosedPort, Ending, Loopback, Reply, Request};
use backstop_tool::{Grants, ToolContext, ToolError, Toolset};
use layer0::Timestamp;
use layer0::failure::{Failure, Retry};
use serde_json::{Value, json};

/// The addresses of a name at each lookup.
type Looks = Vec<Vec<&'static str>>;

/// Known names with the addresses of each lookup, in order; the last one is repeated.
#[derive(Clone, Default)]
struct Names {
    known: Arc<Mutex<Vec<(&'static str, Looks)>>>,
    looks: Arc<AtomicUsize>,
}

impl Names {
    fn with(self, name: &'static str, found: &[&[&'static str]]) -> Self {
        let found = found.iter().map(|found| found.to_vec()).collect();
        self.known.lock().unwrap().push((name, found));
        self
    }
}

#[async_trait]
impl Resolve for Names {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        let mut known = self.known.lock().unwrap();
        let found = known.iter_mut().find(|(name, _)| *name == host);
        let (_, found) = found.ok_or_else(|| io::Error::other("no such name"))?;
        let now = if found.len() > 1 { found.remove(0) } else { found[0].clone() };
        Ok(now.into_iter().map(|address| address.parse().unwrap()).collect())
    }
}

fn context(grants: &[&str]) -> ToolContext {
    let mut context =
        ToolContext::new("run_1".into(), "s-1".into(), "c1".into(), Timestamp::default());
    context.grants = Grants::parse(grants).unwrap();
    context
}

async fn fetch(names: &Names, grants: &[&str], arguments: Value) -> Result<Value, ToolError> {
    let tools = Toolset::new().with(HttpFetch::new().resolver(names.clone())).unwrap();
    let context = context(grants);
    let admitted = tools.admit("http_fetch", arguments, &context.grants)?;
    admitted.tool().call(&admitted.arguments, &context).await.map(|output| output.value())
}

const ALL: [&str; 2] = ["network:outbound", "network:private"];

fn text(status: u16, body: &str) -> Reply {
    Reply::new(status, "text/plain; charset=utf-8", body)
}

fn url(server: &Loopback, host: &str, path: &str) -> String {
    format!("http://{host}:{}{path}", server.address().port())
}

fn here() -> Names {
    Names::default().with("here.test", &[&["127.0.0.1"]]).with("there.test", &[&["127.0.0.1"]])
}

/// Spec: N4
#[tokio::test]
async fn a_page_is_fetched_with_what_describes_it() {
    let server = Loopback::serving(|request: &Request| {
        assert_eq!((request.method.as_str(), request.path.as_str()), ("GET", "/a?b=c"));
        text(200, "Grüße").header("set-cookie", "id=1").header("etag", "\"x\"")
    });
    let url = url(&server, "here.test", "/a?b=c");
    let arguments = json!({"url": url, "headers": {"Accept": "text/plain", "X-Key": "k"}});
    let answer = fetch(&here(), &ALL, arguments).await.unwrap();
    let headers = json!({"content-length": "7", "content-type": "text/plain; charset=utf-8", "etag": "\"x\""});
    assert_eq!(answer, json!({"status": 200, "url": url, "headers": headers, "text": "Grüße"}));
    let request = server.requests().remove(0);
    assert_eq!(request.header("accept"), Some("text/plain"));
    assert_eq!(request.header("x-key"), Some("k"));
    assert!(request.header("user-agent").unwrap().starts_with("backstop/"));
    assert!(request.header("host").unwrap().starts_with("here.test:"));
    assert_eq!(request.header("accept-encoding"), None);
}

/// Spec: Y1, N4
#[tokio::test]
async fn a_host_that_is_not_granted_is_named() {
    let refused = async |grants: &[&str], url: &str| {
        let error = fetch(&here(), grants, json!({ "url": url })).await.unwrap_err();
        let ToolError::PermissionDenied { capability, .. } = error.kind() else {
            panic!("{url}: {error}")
        };
        capability.clone()
    };
    for (grants, url, missing) in [
        (&[][..], "https://example.com/x", "network:outbound:example.com"),
        (&["network:outbound:example.com"], "https://EXAMPLE.org.", "network:outbound:example.org"),
        (&["network:outbound:*.com"], "http://a.com.evil.net/", "network:outbound:a.com.evil.net"),
        (&["network:private"], "http://127.0.0.1/", "network:outbound:127.0.0.1"),
        (&["network:outbound"], "http://127.0.0.1/", "network:private"),
        (&["network:outbound"], "http://2130706433/", "network:private"),
        (&["network:outbound"], "http://0x7f.1/", "network:private"),
        (&["network:outbound"], "http://[::1]:80/", "network:private"),
        (&["network:outbound"], "http://[::ffff:10.0.0.1]/", "network:private"),
        (&["network:outbound"], "http://169.254.169.254/latest/meta-data", "network:private"),
        (&["network:outbound", "network:private:10.0.0.1"], "http://10.0.0.2/", "network:private"),
        // The addresses of a name are known only after it is resolved, and are not disclosed.
        (&["network:outbound"], "http://here.test/", "network:private"),
        (
            &["network:outbound", "network:private:127.0.0.2"],
            "http://here.test/",
            "network:private",
        ),
    ] {
        assert_eq!(refused(grants, url).await, missing, "{url}");
    }
}

/// Spec: N4
#[tokio::test]
async fn one_private_address_among_public_ones_is_enough() {
    let server = Loopback::replying([text(200, "secret")]);
    let names = Names::default().with("mixed.test", &[&["93.184.216.34", "127.0.0.1"]]);
    let url = url(&server, "mixed.test", "/");
    let error = fetch(&names, &["network:outbound"], json!({ "url": url })).await.unwrap_err();
    assert_eq!(error.to_string(), "tool `http_fetch` requires `network:private`");
    assert!(server.requests().is_empty());
}

/// Spec: N4. A name that leads elsewhere once it was judged.
#[tokio::test]
async fn what_was_judged_is_what_is_connected_to() {
    let judged = Loopback::replying([text(200, "judged"), text(200, "judged again")]);
    let port = judged.address().port();
    // The same port at another address of this machine.
    let other = std::net::TcpListener::bind(("127.0.0.2", port)).unwrap();
    let reached = Arc::new(AtomicUsize::new(0));
    std::thread::spawn({
        let reached = Arc::clone(&reached);
        move || {
            for _ in other.incoming() {
                reached.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    let names = Names::default().with("moves.test", &[&["127.0.0.1"], &["127.0.0.2"]]);
    let url = format!("http://moves.test:{port}/");
    let grants = ["network:outbound", "network:private:127.0.0.1"];
    let answer = fetch(&names, &grants, json!({ "url": url })).await.unwrap();
    assert_eq!(answer["text"], "judged");
    assert_eq!(names.looks.load(Ordering::SeqCst), 1, "it is resolved once");
    // The next call finds the other address, and checks it.
    let error = fetch(&names, &grants, json!({ "url": url })).await.unwrap_err();
    assert_eq!(error.to_string(), "tool `http_fetch` requires `network:private`");
    assert_eq!(reached.load(Ordering::SeqCst), 0, "nothing connected to the other address");
}

/// Spec: N4
#[tokio::test]
async fn each_redirect_is_judged() {
    let target = Arc::new(Mutex::new(String::new()));
    let server = Loopback::serving({
        let target = Arc::clone(&target);
        move |request: &Request| match request.path.as_str() {
            "/from" => text(302, "").header("location", target.lock().unwrap().as_str()),
            path => text(200, path),
        }
    });
    let port = server.address().port();
    let names = Names::default()
        .with("here.test", &[&["127.0.0.1"]])
        .with("other.test", &[&["127.0.0.1"]])
        .with("inside.test", &[&["10.0.0.1"]]);
    let grants = [
        "network:outbound:here.test",
        "network:outbound:inside.test",
        "network:outbound:169.254.169.254",
        "network:private:127.0.0.1",
    ];
    let from = url(&server, "here.test", "/from");
    let go = async |to: String| {
        *target.lock().unwrap() = to;
        fetch(&names, &grants, json!({ "url": from })).await
    };
    let answer = go("/to".to_owned()).await.unwrap();
    assert_eq!(
        (&answer["text"], &answer["url"]),
        (&json!("/to"), &json!(url(&server, "here.test", "/to")))
    );
    for (to, missing) in [
        (format!("http://other.test:{port}/x"), "network:outbound:other.test"),
        (format!("http://127.0.0.1:{port}/x"), "network:outbound:127.0.0.1"),
        ("http://169.254.169.254/latest".to_owned(), "network:private"),
        (format!("http://inside.test:{port}/x"), "network:private"),
        (format!("//other.test:{port}/x"), "network:outbound:other.test"),
    ] {
        let error = go(to.clone()).await.unwrap_err();
        assert_eq!(error.to_string(), format!("tool `http_fetch` requires `{missing}`"), "{to}");
    }
    for (to, why) in [
        ("file:///etc/passwd", "must begin with http:// or https://"),
        ("http://u:p@here.test/", "must not hold credentials"),
    ] {
        let error = go(to.to_owned()).await.unwrap_err();
        let expected = format!("HTTP request failed: redirect to `{to}`: {why}");
        assert_eq!(error.to_string(), expected);
    }
    assert!(server.requests().iter().all(|request| request.path != "/x"), "nothing went there");
    let error = go("/from".to_owned()).await.unwrap_err();
    assert_eq!(error.to_string(), "HTTP request failed: more than 10 redirects");
}

/// Spec: E10
#[tokio::test]
async fn another_origin_sees_no_credentials() {
    let second = Loopback::replying([text(200, "there")]);
    let to = url(&second, "there.test", "/");
    let first = Loopback::replying([text(307, "").header("location", to)]);
    let headers =
        json!({"authorization": "Bearer x", "x-key": "k", "range": "bytes=0-9", "accept": "a/b"});
    let arguments = json!({"url": url(&first, "here.test", "/"), "headers": headers});
    fetch(&here(), &ALL, arguments).await.unwrap();
    assert_eq!(first.requests()[0].header("authorization"), Some("Bearer x"));
    let request = &second.requests()[0];
    let seen = ["authorization", "x-key", "range", "accept"].map(|name| request.header(name));
    assert_eq!(seen, [None, None, Some("bytes=0-9"), Some("a/b")]);
}

/// Spec: N4
#[tokio::test]
async fn a_body_is_cut_at_its_limit() {
    let body = "ö".repeat(50_000);
    let server = Loopback::serving({
        let body = body.clone();
        move |_: &Request| text(200, &body).split(1_000)
    });
    let url = url(&server, "here.test", "/");
    let answer = fetch(&here(), &ALL, json!({"url": url, "max_bytes": 5})).await.unwrap();
    assert_eq!(answer["text"], "öö", "a cut goes through no character");
    assert!(answer["note"].as_str().unwrap().starts_with("cut after 5"), "{answer}");
    let answer = fetch(&here(), &ALL, json!({ "url": url })).await.unwrap();
    assert_eq!(answer["text"].as_str().unwrap().len(), 64 * 1024);
    let answer = fetch(&here(), &ALL, json!({"url": url, "max_bytes": 100_000.0})).await.unwrap();
    assert_eq!((answer["text"].as_str(), answer.get("note")), (Some(&*body), None));
}

#[tokio::test]
async fn bodies_are_read_in_their_own_charset() {
    let reply = |kind: &str, body: &[u8]| Reply::new(200, kind, body);
    let server = Loopback::replying([
        reply("text/html; charset=ISO-8859-1", b"Gr\xfc\xdfe"),
        reply("application/octet-stream", b"plain"),
        reply("image/png", b"\x89PNG\0\xff"),
        reply("text/plain", b"bad \xff"),
    ]);
    let url = url(&server, "here.test", "/");
    let mut answers = Vec::new();
    for _ in 0..4 {
        let mut answer = fetch(&here(), &ALL, json!({ "url": url })).await.unwrap();
        answers.push((answer["text"].take(), answer["note"].take()));
    }
    assert_eq!(answers[0].0, "Grüße");
    assert_eq!(answers[1].0, "plain");
    assert_eq!(answers[2], (Value::Null, json!("6 bytes, which are no text")));
    assert_eq!(answers[3].0, "bad \u{fffd}");
}

/// Spec: T3
#[tokio::test]
async fn failures_say_what_failed() {
    let closed = ClosedPort::bind();
    let port = closed.address().port();
    let server = Loopback::replying([
        text(200, "whole").ending(Ending::ResetAt(2)),
        text(404, "no such page\n"),
        text(503, "").header("retry-after", "7"),
        text(500, "oops"),
    ]);
    let url = url(&server, "here.test", "/");
    let failed = async |url: &str| fetch(&here(), &ALL, json!({ "url": url })).await.unwrap_err();
    let error = failed(&format!("http://here.test:{port}/")).await;
    assert_eq!(error.to_string(), "HTTP request failed: connection refused");
    let error = failed("http://nowhere.test/").await;
    let expected = "HTTP request failed: `nowhere.test` cannot be resolved: no such name";
    assert_eq!(error.to_string(), expected);
    let error = failed(&url).await.to_string();
    assert_eq!(error, "HTTP request failed: connection reset");
    let error = failed(&url).await;
    assert_eq!(error.kind().to_string(), "HTTP request failed: 404 Not Found\nno such page");
    assert_eq!(
        (error.author_code().map(|code| &**code), error.retry()),
        (Some("http_404"), Retry::Never)
    );
    let error = failed(&url).await;
    assert_eq!(error.kind().to_string(), "HTTP request failed: 503 Service Unavailable");
    assert_eq!(error.retry(), Retry::After(Duration::from_secs(7)));
    let error = failed(&url).await;
    assert_eq!(
        (error.author_code().map(|code| &**code), error.retry()),
        (Some("http_500"), Retry::Backoff)
    );
}

#[tokio::test]
async fn a_head_has_no_text() {
    let server = Loopback::serving(|request: &Request| {
        assert_eq!(request.method, "HEAD");
        text(200, "")
    });
    let arguments = json!({"url": url(&server, "here.test", "/"), "method": "HEAD"});
    let answer = fetch(&here(), &ALL, arguments).await.unwrap();
    assert_eq!((&answer["status"], answer.get("text")), (&json!(200), None));
}

#[tokio::test]
async fn what_cannot_be_asked_for_is_invalid_input() {
    for (arguments, why) in [
        (json!({"url": "example.com"}), "url cannot be read: relative URL without a base"),
        (json!({"url": "ftp://example.com"}), "url must begin with http:// or https://"),
        (json!({"url": "https://u:p@example.com"}), "url must not hold credentials"),
        (
            json!({"url": "http://here.test", "headers": {"Host": "x"}}),
            "header `Host` cannot be set",
        ),
        (json!({"url": "http://here.test", "headers": {"a b": "x"}}), "header `a b` is no header"),
        (
            json!({"url": "http://here.test", "headers": {"a": "x\ny"}}),
            "header `a` has a value that cannot be sent",
        ),
    ] {
        let error = fetch(&here(), &ALL, arguments).await.unwrap_err();
        assert_eq!(error.to_string(), format!("invalid input: {why}"));
    }
    let posted = json!({"url": "http://here.test", "method": "POST"});
    let error = fetch(&here(), &ALL, posted).await.unwrap_err();
    assert!(error.to_string().starts_with("invalid input: method"), "{error}");
}

/// Spec: P8, T8
#[tokio::test]
async fn status_outlives_a_body_that_breaks() {
    for ending in [Ending::CloseAt(4), Ending::ResetAt(4), Ending::HangAt(4)] {
        let busy = text(503, "busy, come later").header("retry-after", "7.0s");
        let server = Loopback::replying([busy.ending(ending)]);
        let url = url(&server, "here.test", "/");
        let error = fetch(&here(), &ALL, json!({ "url": url })).await.unwrap_err();
        let said = error.kind().to_string();
        assert!(said.starts_with("HTTP request failed: 503 Service Unavailable"), "{said}");
        assert_eq!(error.retry(), Retry::After(Duration::from_secs(7)));
    }
}

/// Spec: T7. What came before the timeout is kept with the error.
#[tokio::test]
async fn what_came_so_far_is_known() {
    let server = Loopback::replying([text(200, "first, then nothing").ending(Ending::HangAt(5))]);
    let tool = HttpFetch::new().resolver(here());
    let context = context(&ALL);
    let written = context.written.clone();
    let arguments = json!({"url": url(&server, "here.test", "/")});
    let call =
        tokio::spawn(
            async move { backstop_tool::Tool::call(&tool, &arguments.into(), &context).await },
        );
    server.hangs(1).await;
    while written.so_far().as_deref() != Some("first") {
        tokio::task::yield_now().await;
    }
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    server.is_left(1).await;
}
