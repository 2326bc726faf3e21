//! Runs that are started under an id that a run has.

use std::sync::Arc;

use backstop::{
    Agent, AgentError, Database, Durability, Effect, EventLog, Failure, MemoryLog,
    PostgresDatabase, Retry, RunRequest, ScriptedProvider,
};
use backstop_event_log::LogError;
use backstop_testkit::PostgresServer;

/// Starts a run twice under one id, which a request does that is sent again.
async fn check(log: Arc<dyn EventLog>) {
    let agent = |text: &str| {
        let model = ScriptedProvider::saying([text]);
        Agent::builder(model).shared_log(Arc::clone(&log)).build().unwrap()
    };
    let request = || RunRequest::new("Ship it.").run("order-7".into());
    agent("Shipped.").run(request()).await.unwrap();
    let before = log.summary(&"order-7".into()).await.unwrap().unwrap();

    let refused = agent("Shipped twice.").run(request()).await.unwrap_err();
    let is_of_id =
        |error: &LogError| matches!(error, LogError::RunExists(run) if run.as_str() == "order-7");
    assert!(
        matches!(&refused.error, AgentError::NotStarted(error) if is_of_id(error)),
        "{refused:?}"
    );
    assert_eq!((refused.code(), refused.retry()), ("run.exists", Retry::Never));
    assert_eq!((refused.effect(), refused.may_pass_later()), (Effect::None, false));
    assert!(refused.hint().contains("Resume the run"), "{}", refused.hint());
    let after = log.summary(&"order-7".into()).await.unwrap().unwrap();
    assert_eq!((after.last_seq, after.head), (before.last_seq, before.head));
    // The advice of the hint.
    let resumed = agent("Shipped thrice.").resume("order-7").await.unwrap();
    assert_eq!(resumed.text(), "Shipped.");
}

/// Spec: D3, E7
#[tokio::test]
async fn a_taken_id_is_refused_as_such() {
    check(Arc::new(MemoryLog::new())).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.db");
    let database = Database::open(file, Durability::Normal).await.unwrap();
    check(Arc::new(database.log())).await;
    let server = tokio::task::spawn_blocking(PostgresServer::shared).await.unwrap();
    let Some(server) = server else { return };
    let database = PostgresDatabase::connect(&server.database().await).await.unwrap();
    check(Arc::new(database.log())).await;
}

/// Spec: D2, E5. Before its first event, a run has done nothing, and its code is that of the cause.
#[tokio::test]
async fn a_closed_store_starts_no_run() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.db");
    let database = Database::open(file, Durability::Normal).await.unwrap();
    let agent = Agent::builder(ScriptedProvider::saying(["done"])).log(database.log());
    database.close().await;
    let failure = agent.build().unwrap().run("go").await.unwrap_err();
    assert!(matches!(failure.error, AgentError::NotStarted(LogError::Closed)), "{failure:?}");
    assert_eq!((failure.code(), failure.effect()), ("store.closed", Effect::None));
}
