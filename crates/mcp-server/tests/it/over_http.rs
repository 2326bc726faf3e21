//! The way in over HTTP.

use std::net::SocketAddr;

use backstop_mcp_server::ServeError;
use reqwest::StatusCode;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::bench::{Bench, call};

async fn served(bench: &Bench, token: Option<&str>) -> (SocketAddr, CancellationToken) {
    served_at("127.0.0.1:0", bench, token).await
}

async fn served_at(
    address: &str,
    bench: &Bench,
    token: Option<&str>,
) -> (SocketAddr, CancellationToken) {
    let listener = TcpListener::bind(address).await.unwrap();
    let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
    let token = token.map(str::to_owned);
    let server = bench.server().allow_origins(["https://app.example".to_owned()]);
    tokio::spawn(server.serve_http(listener, token, stop.clone()));
    (address, stop)
}

const INITIALIZE: &str = r#"{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
    "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}}"#;

/// Spec: Q10. Pages of this machine come by any port, and those of a name that was given.
#[tokio::test]
async fn pages_of_this_machine_are_let_in() {
    let bench = Bench::new();
    let status = async |listener: &str, origin: &str| {
        let (address, _stop) = served_at(listener, &bench, Some("s3cret-token")).await;
        let request = reqwest::Client::new()
            .post(format!("http://127.0.0.1:{}/mcp", address.port()))
            .header("accept", "application/json, text/event-stream")
            .header("content-type", "application/json")
            // The scheme is written in any case.
            .header("authorization", "bearer s3cret-token")
            .header("origin", origin);
        request.body(INITIALIZE).send().await.unwrap().status()
    };
    for origin in [
        "http://localhost:6274",
        "http://127.0.0.1:5173",
        "https://localhost",
        "http://[::1]:80",
        "https://app.example",
    ] {
        assert_eq!(status("127.0.0.1:0", origin).await, StatusCode::OK, "{origin}");
    }
    let strange =
        ["http://localhost.evil.example", "null", "http://app.example", "https://app.example:444"];
    for origin in strange {
        assert_eq!(status("127.0.0.1:0", origin).await, StatusCode::FORBIDDEN, "{origin}");
    }
    // From another machine, its own pages are strangers.
    assert_eq!(status("0.0.0.0:0", "http://localhost:6274").await, StatusCode::FORBIDDEN);
    assert_eq!(status("0.0.0.0:0", "https://app.example").await, StatusCode::OK);
}

/// Spec: Q10
#[tokio::test]
async fn half_a_surrogate_pair_is_answered_over_http() {
    let bench = Bench::new();
    let (address, _stop) = served(&bench, None).await;
    let said = INITIALIZE.replace("\"x\"", r#""half \ud83d""#);
    let request = reqwest::Client::new()
        .post(format!("http://{address}/mcp"))
        .header("accept", "application/json, text/event-stream")
        .header("content-type", "application/json");
    assert_eq!(request.body(said).send().await.unwrap().status(), StatusCode::OK);
}

/// Spec: Q10. A browser asks before the first request of a page, without the token, and shows the page only answers
/// that name its origin.
#[tokio::test]
async fn browsers_let_allowed_pages_in() {
    let bench = Bench::new();
    let (address, _stop) = served(&bench, Some("s3cret-token")).await;
    let url = format!("http://{address}/mcp");
    let http = reqwest::Client::new();
    for (origin, is_allowed) in [("http://localhost:6274", true), ("https://evil.example", false)] {
        let asked = http
            .request(reqwest::Method::OPTIONS, &url)
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", "authorization,content-type,mcp-session-id");
        let asked = asked.send().await.unwrap();
        assert_eq!(asked.status() == StatusCode::NO_CONTENT, is_allowed, "{origin}");
        let header = |name: &str| asked.headers().get(name).and_then(|it| it.to_str().ok());
        assert_eq!(header("access-control-allow-origin"), is_allowed.then_some(origin));
        if is_allowed {
            let allowed = header("access-control-allow-headers").unwrap();
            assert!(
                ["authorization", "content-type", "mcp-session-id"]
                    .iter()
                    .all(|it| allowed.contains(it))
            );
        }
    }
    let posted = http
        .post(&url)
        .header("accept", "application/json, text/event-stream")
        .header("content-type", "application/json")
        .header("authorization", "Bearer s3cret-token")
        .header("origin", "http://localhost:6274");
    let posted = posted.body(INITIALIZE).send().await.unwrap();
    assert_eq!(posted.status(), StatusCode::OK);
    assert_eq!(posted.headers()["access-control-allow-origin"], "http://localhost:6274");
    let shown = posted.headers()["access-control-expose-headers"].to_str().unwrap();
    assert!(shown.contains("mcp-session-id") && posted.headers().contains_key("mcp-session-id"));
}

/// Spec: E11
#[tokio::test]
async fn private_keys_are_refused_over_http() {
    let bench = Bench::new();
    let (address, _stop) = served(&bench, None).await;
    let said = INITIALIZE.replace("\"x\"", r#"{"$serde_json::private::RawValue":"\"x\""}"#);
    let request = reqwest::Client::new()
        .post(format!("http://{address}/mcp"))
        .header("accept", "application/json, text/event-stream")
        .header("content-type", "application/json");
    assert_eq!(request.body(said).send().await.unwrap().status(), StatusCode::BAD_REQUEST);
}

/// Spec: Q10
#[tokio::test]
async fn clients_call_over_http() {
    let bench = Bench::new();
    let (address, stop) = served(&bench, Some("s3cret-token")).await;
    let config = StreamableHttpClientTransportConfig::with_uri(format!("http://{address}/mcp"))
        .auth_header("s3cret-token");
    let client =
        rmcp::serve_client((), StreamableHttpClientTransport::from_config(config)).await.unwrap();
    let (is_error, text, _) = call(&client, json!({"input": "sweep"})).await;
    assert_eq!((is_error, text.as_str()), (false, "did: sweep"));
    let (is_error, text, _) = call(&client, json!({"input": "fail"})).await;
    assert!(is_error, "{text}");
    stop.cancel();
}

/// Spec: Q10. Without the token, from a page of a browser and by a name of its own, nothing is reached.
#[tokio::test]
async fn strangers_are_refused() {
    let bench = Bench::new();
    let (address, _stop) = served(&bench, Some("s3cret-token")).await;
    let url = format!("http://{address}/mcp");
    let http = reqwest::Client::new();
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"},
    }});
    let post = |token: &str| {
        http.post(&url)
            .header("accept", "application/json, text/event-stream")
            .header("authorization", format!("Bearer {token}"))
            .json(&initialize)
    };
    assert_eq!(post("s3cret-tokem").send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
    assert_eq!(post("").send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
    let bare = http.post(&url).json(&initialize).send().await.unwrap();
    assert_eq!(bare.status(), StatusCode::UNAUTHORIZED);
    let framed =
        post("s3cret-token").header("origin", "https://evil.example").send().await.unwrap();
    assert_eq!(framed.status(), StatusCode::FORBIDDEN);
    let rebound = post("s3cret-token").header("host", "evil.example").send().await.unwrap();
    assert_eq!(rebound.status(), StatusCode::FORBIDDEN);
    let elsewhere = http.get(format!("http://{address}/")).send().await.unwrap();
    assert_eq!(elsewhere.status(), StatusCode::NOT_FOUND);
    assert_eq!(post("s3cret-token").send().await.unwrap().status(), StatusCode::OK);
}

/// Spec: Q10
#[tokio::test]
async fn other_machines_need_a_token() {
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let served = Bench::new().server().serve_http(listener, None, CancellationToken::new()).await;
    assert!(matches!(served, Err(ServeError::NoToken(_))), "{served:?}");
}
