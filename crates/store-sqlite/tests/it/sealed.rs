//! The seals of rows and erasures.

use std::path::Path;
use std::sync::Arc;

use backstop_event_log::{
    Batch, Erasures, Log, LogError, LogKey, RunSummary, RunWriter, Seed, Verified, verify_run,
};
use backstop_store_sqlite::Database;
use layer0::event::{Actor, EventKind, Warning};
use layer0::id::RunId;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, SqliteConnection};

use crate::{Folder, at, open, started};

fn key() -> LogKey {
    LogKey::new("correct horse battery staple").unwrap()
}

async fn keyed(path: &Path) -> Database {
    open(path).await.with_log_key(key())
}

/// Returns the first event of a run that is sealed with the key; in an older version it does not record that the row is
/// sealed.
fn first(row_sealed: bool) -> EventKind {
    let EventKind::RunStarted(mut first) = started("s") else { unreachable!("a run starts") };
    (first.key_id, first.row_sealed) = (Some(key().id().into()), row_sealed);
    first.into()
}

/// Writes a run of four events.
async fn fill(path: &Path, row_sealed: bool) {
    let database = keyed(path).await;
    let mut writer = RunWriter::new(Arc::new(database.log()), "run_1".into());
    write(&mut writer, vec![first(row_sealed)]).await;
    for message in ["one", "two", "three"] {
        write(&mut writer, vec![Warning::new(message).into()]).await;
    }
    drop(writer);
    database.close().await;
}

async fn write(writer: &mut RunWriter, kinds: Vec<EventKind>) {
    for kind in kinds {
        writer.stage(&Seed::new("test"), at(1), Actor::Runtime, None, kind);
    }
    writer.commit().await.unwrap();
}

async fn verified(path: &Path) -> Result<Verified, LogError> {
    let database = keyed(path).await;
    let verified = verify_run(&database.log(), &"run_1".into()).await;
    database.close().await;
    verified
}

/// Returns the seq at which a run was tampered with.
async fn tampered(path: &Path) -> u64 {
    match verified(path).await {
        Err(LogError::Tampered { seq, .. }) => seq,
        other => panic!("{other:?}"),
    }
}

async fn connect(path: &Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(path).connect().await.unwrap()
}

/// Replaces the payload of an event with its digest, as is possible without the key.
async fn forge_erasure(path: &Path, seq: i64) {
    let database = keyed(path).await;
    let records = database.log().records(&"run_1".into(), 1).await.unwrap();
    let record = records.iter().find(|record| record.seq == seq.unsigned_abs()).unwrap();
    let digest = record.payload.digest().unwrap();
    database.close().await;
    let mut connection = connect(path).await;
    sqlx::query("UPDATE events SET data = '', salt = NULL, erased = $2 WHERE seq = $1")
        .bind(seq)
        .bind(&digest.0[..])
        .execute(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
}

/// Changes the summary in the row, as is possible without the key.
async fn change_row(path: &Path, change: impl FnOnce(&mut RunSummary)) {
    let mut connection = connect(path).await;
    let text: String =
        sqlx::query_scalar("SELECT summary FROM runs").fetch_one(&mut connection).await.unwrap();
    let mut summary: RunSummary = serde_json::from_str(&text).unwrap();
    change(&mut summary);
    sqlx::query("UPDATE runs SET summary = $1")
        .bind(serde_json::to_string(&summary).unwrap())
        .execute(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
}

/// Spec: D1
#[tokio::test]
async fn erasure_without_the_key_is_found() {
    for seq in [1, 2, 4] {
        let folder = Folder::new();
        fill(&folder.file(), true).await;
        verified(&folder.file()).await.unwrap();
        forge_erasure(&folder.file(), seq).await;
        assert_eq!(tampered(&folder.file()).await, seq.unsigned_abs());
        // The erasure is repeated with the key.
        let database = keyed(&folder.file()).await;
        database.log().erase(&"run_1".into(), seq.unsigned_abs()).await.unwrap();
        database.close().await;
        assert!(verified(&folder.file()).await.unwrap().unchecked.is_empty());
        change_row(&folder.file(), |row| row.usage.tool_calls = 99).await;
        tampered(&folder.file()).await;
    }
}

/// Spec: D1
#[tokio::test]
async fn shortened_keyed_record_is_found() {
    let folder = Folder::new();
    fill(&folder.file(), true).await;
    let mut connection = connect(&folder.file()).await;
    sqlx::raw_sql(
        "UPDATE runs SET last_seq = 3, last_event = (SELECT id FROM events WHERE seq = 3), \
         head = (SELECT hash FROM events WHERE seq = 3); DELETE FROM events WHERE seq = 4",
    )
    .execute(&mut connection)
    .await
    .unwrap();
    assert_eq!(tampered(&folder.file()).await, 3);
    sqlx::raw_sql("UPDATE runs SET seal = NULL").execute(&mut connection).await.unwrap();
    assert_eq!(tampered(&folder.file()).await, 3, "a row that says that it is sealed has an HMAC");
}

/// Spec: D1. An erasure by one who has the key verifies, and needs it.
#[tokio::test]
async fn erasure_with_the_key_verifies() {
    let folder = Folder::new();
    fill(&folder.file(), true).await;
    let unkeyed = open(&folder.file()).await;
    let refused = unkeyed.log().erase(&"run_1".into(), 2).await;
    assert!(matches!(refused, Err(LogError::KeyMissing { .. })), "{refused:?}");
    unkeyed.close().await;
    let database = keyed(&folder.file()).await;
    for (seq, erased) in [(2, &[2][..]), (1, &[1, 2])] {
        database.log().erase(&"run_1".into(), seq).await.unwrap();
        let found = verify_run(&database.log(), &"run_1".into()).await.unwrap();
        assert_eq!((&found.erased[..], found.unchecked.is_empty()), (erased, true));
    }
    database.close().await;
    let mut connection = connect(&folder.file()).await;
    sqlx::raw_sql("UPDATE runs SET seal = NULL").execute(&mut connection).await.unwrap();
    tampered(&folder.file()).await;
}

/// Spec: D1, D15. The copy of an erasure by one who has the key verifies; that of another one does not.
#[tokio::test]
async fn copied_erasure_keeps_its_seal() {
    let (folder, copy) = (Folder::new(), Folder::new());
    fill(&folder.file(), true).await;
    let (from, run) = (keyed(&folder.file()).await, RunId::from("run_1"));
    for seq in [1, 3] {
        from.log().erase(&run, seq).await.unwrap();
    }
    let summary = from.log().summary(&run).await.unwrap().unwrap();
    let records = from.log().records(&run, 1).await.unwrap();
    let sealed = verify_run(&from.log(), &run).await.unwrap().erased;
    let import = async |path: &Path, sealed: Vec<u64>| {
        let to = keyed(path).await;
        let epoch = to.log().claim_new(&run).epoch();
        let batch = Batch::new(run.clone(), epoch, records.clone(), summary.clone()).importing();
        to.log().append(batch.with_sealed_erasures(sealed)).await.unwrap();
        to.close().await;
    };
    import(&copy.file(), sealed).await;
    let found = verified(&copy.file()).await.unwrap();
    assert_eq!((&found.erased[..], found.unchecked.is_empty()), (&[1, 3][..], true));
    let unsealed = Folder::new();
    import(&unsealed.file(), vec![1]).await;
    assert_eq!(verified(&unsealed.file()).await.unwrap().unchecked.erasures, [3]);
}

/// Spec: D1. A run of an older version is read; what no HMAC stands on is named, until the next append.
#[tokio::test]
async fn unsealed_row_is_named_until_appended() {
    let folder = Folder::new();
    fill(&folder.file(), false).await;
    let mut connection = connect(&folder.file()).await;
    sqlx::raw_sql("UPDATE runs SET seal = NULL").execute(&mut connection).await.unwrap();
    let found = verified(&folder.file()).await.unwrap();
    assert!(found.unchecked.row && found.unchecked.erasures.is_empty());
    let database = keyed(&folder.file()).await;
    let log = Arc::new(database.log());
    let claim = log.claim(&"run_1".into()).await.unwrap();
    let summary = log.summary(&"run_1".into()).await.unwrap().unwrap();
    let mut writer = RunWriter::resume(log, summary, claim);
    write(&mut writer, vec![Warning::new("four").into()]).await;
    drop(writer);
    database.close().await;
    assert!(verified(&folder.file()).await.unwrap().unchecked.is_empty());
    forge_erasure(&folder.file(), 3).await;
    assert_eq!(verified(&folder.file()).await.unwrap().unchecked.erasures, [3]);
}

/// Spec: D1. What is left says of a summary what erased events did not add.
#[tokio::test]
async fn summary_is_held_against_what_is_left() {
    type Change = fn(&mut RunSummary);
    let changes: [(Change, bool); 5] = [
        (|row| row.agent = "another".into(), false),
        (|row| row.errors = 3, false),
        (|row| row.usage.tool_calls = 3, false),
        (|row| row.usage.wall_ms += 1, false),
        (|_| {}, true),
    ];
    for (change, is_sound) in changes {
        let folder = Folder::new();
        let database = open(&folder.file()).await;
        let mut writer = RunWriter::new(Arc::new(database.log()), "run_1".into());
        write(&mut writer, vec![started("s"), Warning::new("one").into()]).await;
        drop(writer);
        database.log().erase(&"run_1".into(), 2).await.unwrap();
        database.close().await;
        change_row(&folder.file(), change).await;
        assert_eq!(verified(&folder.file()).await.is_ok(), is_sound);
    }
}
