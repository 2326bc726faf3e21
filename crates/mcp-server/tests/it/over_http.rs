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
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
    let token = token.map(str::to_owned);
    tokio::spawn(bench.server().serve_http(listener, token, stop.clone()));
    (address, stop)
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
