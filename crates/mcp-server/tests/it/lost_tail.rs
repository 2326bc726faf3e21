//! A run whose store comes back without events that it had acknowledged.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use backstop_event_log::{EventLog, StartKeys};
use backstop_mcp_server::{Offer, Server};
use backstop_orchestrator::LocalOrchestrator;
use backstop_provider::{ScriptedAnswer, ScriptedProvider};
use backstop_react::Agent;
use backstop_store_sqlite::{Database, Durability};
use backstop_tool::{ToolContext, ToolError, tool};
use layer0::message::Message;
use rmcp::model::RequestMetaObject;
use rmcp::service::{RoleClient, RunningService};
use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions};
use tokio::sync::Semaphore;

use crate::bench::{connect, params, shown};

/// The payments that were made, and whether they may end.
struct Bank {
    paid: AtomicU32,
    is_open: Semaphore,
}

/// Pays.
#[tool]
async fn pay(context: &ToolContext) -> Result<String, ToolError> {
    let bank: &Arc<Bank> = context.state().unwrap();
    bank.paid.fetch_add(1, Ordering::SeqCst);
    bank.is_open.acquire().await.unwrap().forget();
    Ok("paid".into())
}

/// Serves an agent that pays, as a process does that has this database.
fn serve(database: &Database, bank: &Arc<Bank>) -> Server {
    let model = ScriptedProvider::from_fn(|request| {
        match request.messages.messages().last().map(|it| &**it) {
            Some(Message::Tool { .. }) => ScriptedAnswer::saying("done"),
            _ => ScriptedAnswer::calling("pay", json!({})),
        }
    });
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let clerk = Agent::builder(model).name("clerk").tool(pay).state(Arc::clone(bank));
    let clerk = clerk.shared_log(Arc::clone(&log)).build().unwrap();
    let orchestrator = LocalOrchestrator::builder().operator(clerk).shared_log(log);
    let keys: Arc<dyn StartKeys> = Arc::new(database.log());
    Server::new(orchestrator.build().unwrap())
        .offer(Offer::new("clerk", "Pays."))
        .start_keys(keys)
        .answer_within(Duration::from_secs(60))
}

async fn keyed(client: &RunningService<RoleClient, ()>) -> (bool, String, Value) {
    let mut meta = RequestMetaObject::default();
    meta.insert("backstop/idempotency-key".into(), json!("order-7"));
    let mut params = params(json!({"input": "pay"}));
    params.meta = Some(meta);
    shown(client.call_tool(params).await.unwrap())
}

async fn execute(file: &Path, statements: String) {
    let mut sql = SqliteConnectOptions::new().filename(file).connect().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(statements)).execute(&mut sql).await.unwrap();
}

/// Spec: J2, Q10. The client makes its call again with the same key: what was paid is not paid again.
#[tokio::test(flavor = "multi_thread")]
async fn lost_tail_of_a_key_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (file, copy) = (folder.path().join("a.db"), folder.path().join("backup.db"));
    let open = async || Database::open(&file, Durability::Normal).await.unwrap();
    let (one, two) = (open().await, open().await);
    let bank = Arc::new(Bank { paid: AtomicU32::new(0), is_open: Semaphore::new(0) });
    let client = connect(serve(&one, &bank)).await;
    let (answer, ()) = tokio::join!(keyed(&client), async {
        while bank.paid.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        execute(&file, format!("VACUUM INTO '{}'", copy.display())).await;
        bank.is_open.add_permits(9);
    });
    assert!(!answer.0, "{answer:?}");
    let restore = format!(
        "ATTACH '{}' AS old; BEGIN IMMEDIATE; DELETE FROM main.events; DELETE FROM main.runs; \
         INSERT INTO main.runs SELECT * FROM old.runs; \
         INSERT INTO main.events SELECT * FROM old.events; \
         UPDATE main.runs SET owner = NULL; COMMIT",
        copy.display()
    );
    execute(&file, restore).await;
    // Another process is refused too, once one that knows the tail has found it lost.
    let other = connect(serve(&two, &bank)).await;
    for client in [&client, &client, &other] {
        let (is_error, text, said) = keyed(client).await;
        assert!(is_error, "{text}");
        assert_eq!(said["error"]["code"], "log.lost_tail", "{text}");
        assert_eq!(bank.paid.load(Ordering::SeqCst), 1);
    }
}
