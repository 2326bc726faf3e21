//! The seals of rows and erasures.

use std::sync::Arc;

use backstop_event_log::{
    Batch, Erasures, Log, LogError, LogKey, RunWriter, Seed, Verified, verify_run,
};
use backstop_store_postgres::Database;
use layer0::event::{Actor, EventKind, Warning};
use layer0::id::RunId;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::support::{at, open, server, started};

fn key() -> LogKey {
    LogKey::new("correct horse battery staple").unwrap()
}

async fn keyed(url: &str) -> Database {
    open(url).await.with_log_key(key())
}

/// Writes a run of four events that is sealed with the key.
async fn fill(url: &str) {
    let database = keyed(url).await;
    let mut writer = RunWriter::new(Arc::new(database.log()), "run_1".into());
    let EventKind::RunStarted(mut first) = started("s") else { unreachable!("a run starts") };
    (first.key_id, first.row_sealed) = (Some(key().id().into()), true);
    let kinds = ["one", "two", "three"].map(|message| Warning::new(message).into());
    for kind in [first.into()].into_iter().chain(kinds) {
        writer.stage(&Seed::new("test"), at(1), Actor::Runtime, None, kind);
        writer.commit().await.unwrap();
    }
    drop(writer);
    database.close().await;
}

async fn verified(url: &str) -> Result<Verified, LogError> {
    let database = keyed(url).await;
    let verified = verify_run(&database.log(), &"run_1".into()).await;
    database.close().await;
    verified
}

async fn execute(url: &str, statements: &'static str) {
    let mut connection = PgConnection::connect(url).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(statements)).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

/// Spec: D1. Whatever is changed without the key is found.
#[tokio::test(flavor = "multi_thread")]
async fn changes_without_the_key_are_found() {
    let server = server!();
    const ERASED: &str = "UPDATE backstop.events SET data = '', salt = NULL, \
        erased = sha256(salt || convert_to(data, 'UTF8')) WHERE seq = 2";
    const SHORTENED: &str = "UPDATE backstop.runs SET last_seq = 3, \
        head = (SELECT hash FROM backstop.events WHERE seq = 3); DELETE FROM backstop.events WHERE seq = 4";
    const UNSEALED: &str = "UPDATE backstop.runs SET seal = NULL";
    for (change, at) in [(ERASED, 2), (SHORTENED, 3), (UNSEALED, 4)] {
        let url = server.database().await;
        fill(&url).await;
        verified(&url).await.unwrap();
        execute(&url, change).await;
        let found = verified(&url).await;
        assert!(matches!(found, Err(LogError::Tampered { seq, .. }) if seq == at), "{found:?}");
    }
}

/// Spec: D1, D15. The copy of an erasure by one who has the key verifies.
#[tokio::test(flavor = "multi_thread")]
async fn copied_erasure_keeps_its_seal() {
    let server = server!();
    let (url, copy, run) = (server.database().await, server.database().await, RunId::from("run_1"));
    fill(&url).await;
    let (from, to) = (keyed(&url).await, keyed(&copy).await);
    for seq in [1, 3] {
        from.log().erase(&run, seq).await.unwrap();
    }
    let summary = from.log().summary(&run).await.unwrap().unwrap();
    let records = from.log().records(&run, 1).await.unwrap();
    let epoch = to.log().claim_new(&run).epoch();
    let batch = Batch::new(run, epoch, records, summary).importing();
    to.log().append(batch.with_sealed_erasures(vec![1, 3])).await.unwrap();
    let found = verified(&copy).await.unwrap();
    assert_eq!((&found.erased[..], found.unchecked.is_empty()), (&[1, 3][..], true));
}

/// Spec: D1. An erasure by one who has the key verifies, and needs it.
#[tokio::test(flavor = "multi_thread")]
async fn erasure_with_the_key_verifies() {
    let url = server!().database().await;
    fill(&url).await;
    let unkeyed = open(&url).await;
    let refused = unkeyed.log().erase(&"run_1".into(), 2).await;
    assert!(matches!(refused, Err(LogError::KeyMissing { .. })), "{refused:?}");
    unkeyed.close().await;
    let database = keyed(&url).await;
    for (seq, erased) in [(2, &[2][..]), (1, &[1, 2])] {
        database.log().erase(&"run_1".into(), seq).await.unwrap();
        let found = verify_run(&database.log(), &"run_1".into()).await.unwrap();
        assert_eq!((&found.erased[..], found.unchecked.is_empty()), (erased, true));
    }
    database.close().await;
}
