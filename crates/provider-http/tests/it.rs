//! The client in its surroundings: other clients in the process, and servers that are none.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::io::{Read, Write};
use std::net::TcpListener;

use layer0::Failure;
use layer0::failure::Chain;
use provider_http::{Endpoint, EndpointSettings, Timeouts};
use reqwest::Client;
use rustls::crypto::CryptoProvider;

fn open() -> Endpoint {
    open_at("https://127.0.0.1:9")
}

fn open_at(base_url: &str) -> Endpoint {
    Endpoint::open(&EndpointSettings {
        provider: "test",
        model: "m",
        base_url,
        path: "/chat",
        credential: None,
        headers: &[],
        timeouts: Timeouts::default(),
        rows: &[],
    })
    .unwrap()
}

/// Says whether the process has a crypto provider for everyone; nothing that is tested here sets one.
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

/// Serves one connection: reads a little, writes this, and closes it.
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

fn free_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

/// Spec: E7, E10
#[tokio::test]
async fn every_unanswered_request_has_a_hint() {
    let tls_alert: &[u8] = &[21, 3, 1, 0, 2, 2, 70];
    // Too long for any resolver to ask for.
    let unknown = format!("http://{}:1", "a".repeat(64));
    let banner: &[u8] = b"SSH-2.0-OpenSSH_9.9\r\n";
    for (base_url, expected) in [
        (free_port(), "is it running? base_url is `{}/…/v1`"),
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
        let endpoint = open_at(&format!("{base_url}/t0ken-1n-the-path/v1"));
        let error = endpoint.post(&serde_json::json!({}), None).await.err().unwrap();
        let (text, hint) = (Chain(&error).to_string(), error.hint().unwrap_or_default());
        assert_eq!(error.code(), "provider.transient", "{text}");
        let expected = expected.replace("{}", &base_url);
        assert!(hint.contains(&expected), "{text}: {hint}");
        assert!(hint.contains(&format!("`{base_url}/…/v1`")), "{hint}");
        for shown in [&text, &*hint, &format!("{error:?}"), &format!("{endpoint:?}")] {
            assert!(!shown.contains("t0ken"), "{shown}");
        }
    }
}
