//! Several calls that wait for one run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use backstop_event_log::{KeyBinding, LogError, MemoryLog, RunFilter, Runs, StartKey, StartKeys};
use layer0::Timestamp;
use layer0::id::RunId;
use layer0::stop::Outcome;
use rmcp::model::{CallToolRequest, ClientRequest, RequestMetaObject};
use rmcp::service::{PeerRequestOptions, RequestHandle, RoleClient, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::bench::{Bench, call, connect, params};

/// Counts how often a key was found.
#[derive(Default)]
struct Counted {
    keys: MemoryLog,
    found: AtomicU32,
}

#[async_trait]
impl StartKeys for Counted {
    async fn bind(
        &self,
        key: &StartKey,
        run: &RunId,
        now: Timestamp,
    ) -> Result<KeyBinding, LogError> {
        let bound = self.keys.bind(key, run, now).await?;
        self.found.fetch_add(u32::from(bound != KeyBinding::New), Ordering::SeqCst);
        Ok(bound)
    }
}

/// A run that hangs, and two calls with one key that wait for it.
struct Shared {
    bench: Bench,
    client: RunningService<RoleClient, ()>,
}

impl Shared {
    /// Starts the run; returns the call that started it, and the one that found it.
    async fn new() -> (Self, RequestHandle<RoleClient>, RequestHandle<RoleClient>) {
        let (bench, keys) = (Bench::new(), Arc::new(Counted::default()));
        let server = bench.server().answer_within(Duration::from_secs(600));
        let client = connect(server.start_keys(keys.clone())).await;
        let first = keyed(&client).await;
        while bench.asked.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        let second = keyed(&client).await;
        while keys.found.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        (Self { bench, client }, first, second)
    }

    /// Returns whether the run is open, after further complete calls have shown that earlier messages were processed.
    async fn is_open(&self) -> bool {
        for _ in 0..3 {
            call(&self.client, json!({"input": "sweep"})).await;
        }
        let runs = self.bench.log.runs(RunFilter::new()).await.unwrap();
        runs.iter().any(|run| run.is_open())
    }

    async fn cancelled(&self) {
        while self.is_open().await {}
        let runs = self.bench.log.runs(RunFilter::new()).await.unwrap();
        assert!(runs.iter().any(|run| run.outcome == Some(Outcome::Cancelled)), "{runs:?}");
    }
}

async fn keyed(client: &RunningService<RoleClient, ()>) -> RequestHandle<RoleClient> {
    let mut meta = RequestMetaObject::default();
    meta.insert("backstop/idempotency-key".into(), Value::from("order-7"));
    let mut params = params(json!({"input": "hang"}));
    params.meta = Some(meta);
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
    client.send_cancellable_request(request, PeerRequestOptions::no_options()).await.unwrap()
}

/// Spec: Q10. It is stopped once no call waits for it.
#[tokio::test]
async fn cancel_of_one_call_leaves_the_other() {
    let (shared, first, second) = Shared::new().await;
    first.cancel(None).await.unwrap();
    assert!(shared.is_open().await, "the second call waits for it");
    second.cancel(None).await.unwrap();
    shared.cancelled().await;
}

/// Spec: Q10. The connection of the other call is lost once the first was cancelled.
#[tokio::test]
async fn lost_connection_stops_what_was_given_up() {
    let (bench, keys) = (Bench::new(), Arc::new(Counted::default()));
    let (listener, stop) =
        (TcpListener::bind("127.0.0.1:0").await.unwrap(), CancellationToken::new());
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let server = bench.server().answer_within(Duration::from_secs(600)).start_keys(keys.clone());
    tokio::spawn(server.serve_http(listener, None, stop.clone()));
    let connect = async || {
        let config = StreamableHttpClientTransportConfig::with_uri(url.clone());
        rmcp::serve_client((), StreamableHttpClientTransport::from_config(config)).await.unwrap()
    };
    let (one, other) = (connect().await, connect().await);
    let first = keyed(&one).await;
    while bench.asked.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    let second = keyed(&other).await;
    while keys.found.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    first.cancel(None).await.unwrap();
    let shared = Shared { bench, client: one };
    assert!(shared.is_open().await, "the second call waits for it");
    drop(second);
    other.cancel().await.unwrap();
    shared.cancelled().await;
}

/// Spec: Q10. The call that started the run has it stopped, and no other.
#[tokio::test]
async fn run_ends_with_the_call_that_started_it() {
    let (shared, first, second) = Shared::new().await;
    second.cancel(None).await.unwrap();
    assert!(shared.is_open().await, "the first call waits for it");
    first.cancel(None).await.unwrap();
    shared.cancelled().await;
}
