//! What keeps a database from being opened, and what it says then.

use std::sync::Arc;

use backstop_event_log::{EventLog, RunFilter};
use backstop_store_postgres::{Database, OpenError, Options};
use layer0::StateStore;
use layer0::failure::{Failure, chain};
use layer0::state::Scope;

use crate::support::{begin, connection, open, over_on, server, started};

async fn refused(url: &str) -> OpenError {
    let error = Database::connect(url).await.unwrap_err();
    let said = chain(&error).join(": ");
    assert!(!said.contains("hunter22"), "{said}");
    assert!(!said.contains(" at line "), "a line of the server's source: {said}");
    error
}

fn name_of(url: &str) -> String {
    url.rsplit('/').next().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_reason_has_a_variant() {
    let server = server!();
    let unreachable = refused("postgres://u:hunter22@127.0.0.1:1/db").await;
    assert!(matches!(unreachable, OpenError::Unreachable { .. }), "{unreachable:?}");
    assert!(unreachable.retry().is_retryable() && unreachable.hint().is_some());
    assert!(matches!(refused("nonsense:hunter22").await, OpenError::InvalidUrl(_)));
    let missing = refused(&server.url_of("no_such_database")).await;
    assert!(matches!(missing, OpenError::NoDatabase(_)), "{missing:?}");

    let url = server.database().await;
    let reader = Database::connect_read_only(Options::new(&url).unwrap()).await;
    assert!(matches!(reader, Err(OpenError::Missing(_))), "{reader:?}");

    let foreign = server.database().await;
    let tables = "CREATE SCHEMA backstop; CREATE TABLE backstop.things (id int)";
    server.execute_in(&name_of(&foreign), tables).await;
    assert!(matches!(refused(&foreign).await, OpenError::Foreign(_)));
    let tables = "CREATE TABLE backstop.migrations (id int)";
    server.execute_in(&name_of(&foreign), tables).await;
    assert!(matches!(refused(&foreign).await, OpenError::Foreign(_)));

    let newer = server.database().await;
    open(&newer).await.close().await;
    let later = "INSERT INTO backstop.migrations (version) VALUES (9999)";
    server.execute_in(&name_of(&newer), later).await;
    let error = refused(&newer).await;
    assert!(matches!(error, OpenError::SchemaNewer { found: 9999, .. }), "{error:?}");
    assert_eq!(error.code(), "log.schema_newer");
}

/// Spec: D9. Two that open a database at once, which was restored on another server, count on once.
#[tokio::test(flavor = "multi_thread")]
async fn restored_database_counts_on_once() {
    let url = server!().database().await;
    open(&url).await.close().await;
    let mut other = connection(&url).await;
    let restored = "UPDATE backstop.meta SET removed_until = 1::bigint << 50";
    sqlx::raw_sql(restored).execute(&mut other).await.unwrap();
    let mut opening = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let url = url.clone();
        opening.spawn(async move { open(&url).await.close().await });
    }
    opening.join_all().await;
    let offset: i64 = sqlx::query_scalar("SELECT tx_offset FROM backstop.meta")
        .fetch_one(&mut other)
        .await
        .unwrap();
    assert!((1 << 29..=1 << 30).contains(&offset), "{offset}");
}

/// Spec: D9. One that an older version dumped is migrated first.
#[tokio::test(flavor = "multi_thread")]
async fn migrated_restored_database_counts_on() {
    let url = server!().database().await;
    open(&url).await.close().await;
    let mut other = connection(&url).await;
    let restored = "DROP TABLE backstop.transcripts; ALTER TABLE backstop.meta DROP COLUMN retention; \
        DELETE FROM backstop.migrations WHERE version > 11; \
        UPDATE backstop.meta SET removed_until = 1::bigint << 50";
    sqlx::raw_sql(restored).execute(&mut other).await.unwrap();
    open(&url).await.close().await;
    let offset: i64 = sqlx::query_scalar("SELECT tx_offset FROM backstop.meta")
        .fetch_one(&mut other)
        .await
        .unwrap();
    assert!((1 << 29..=1 << 30).contains(&offset), "{offset}");
}

/// What migration 9 finds: what two calls answered, of which one is of a run in another store.
const BEFORE_ERASED_TEXTS: &str = "DROP TABLE backstop.removed_incarnations, backstop.erasures, backstop.delivery_failures, backstop.transcripts; \
    ALTER TABLE backstop.runs DROP COLUMN incarnation, DROP COLUMN seal; \
    ALTER TABLE backstop.approvals DROP COLUMN asked_at; ALTER TABLE backstop.meta DROP COLUMN mark, DROP COLUMN erasures, DROP COLUMN retention; \
    ALTER TABLE backstop.removed DROP COLUMN is_silent; ALTER TABLE backstop.expired DROP COLUMN at; \
    DELETE FROM backstop.migrations WHERE version > 8; \
    INSERT INTO backstop.state (scope, key, version, at, value, words) VALUES ('global', 'once/pay/a', 1, 1, \
    '{\"call_id\":\"c\",\"output\":\"an older answer\",\"run\":\"run_0\",\"state\":\"done\"}', '{}')";

/// Spec: S10, T16. What calls of removed runs answered goes; where the runs are in another store, it stays.
#[tokio::test(flavor = "multi_thread")]
async fn older_answers_go_with_removed_runs() {
    let server = server!();
    for has_runs in [true, false] {
        let url = server.database().await;
        let database = open(&url).await;
        if has_runs {
            let log: Arc<dyn EventLog> = Arc::new(database.log());
            drop(begin(&log, "run_1", "s").await);
        }
        database.close().await;
        server.execute_in(&name_of(&url), BEFORE_ERASED_TEXTS).await;
        let state = open(&url).await.state();
        let kept = state.read(&Scope::Run("run_0".into()), "once/pay/a").await.unwrap();
        let kept = kept.map(|kept| kept.value.to_string());
        assert_eq!(kept.is_some(), !has_runs, "{kept:?}");
        assert!(kept.is_none_or(|kept| kept.contains("an older answer")));
        let done = state.read(&Scope::Global, "once/pay/a").await.unwrap().unwrap().value;
        assert_eq!(done.value()["state"], "done");
        assert_eq!(done.pointer("/output"), None);
    }
}

/// Spec: S10, T16. A database whose runs were all removed is not one without runs.
#[tokio::test(flavor = "multi_thread")]
async fn older_answers_of_pruned_runs_go() {
    let server = server!();
    let url = server.database().await;
    let database = open(&url).await;
    over_on(&database, 0, "run_0", started("s")).await;
    database.delete_run(&"run_0".into()).await.unwrap();
    database.close().await;
    server.execute_in(&name_of(&url), BEFORE_ERASED_TEXTS).await;
    let state = open(&url).await.state();
    let kept = state.read(&Scope::Run("run_0".into()), "once/pay/a").await.unwrap();
    assert!(kept.is_none(), "{kept:?}");
}

/// A role without the right to make tables can run what another one migrated.
#[tokio::test(flavor = "multi_thread")]
async fn a_role_without_ddl_rights_writes_runs() {
    let server = server!();
    let url = server.database().await;
    let name = name_of(&url);
    let role = format!("role_{name}");
    server.execute(&format!("DROP ROLE IF EXISTS {role}")).await;
    server
        .execute(&format!("CREATE ROLE {role} LOGIN; REVOKE CREATE ON DATABASE {name} FROM public"))
        .await;
    let theirs = url.replace("//backstop@", &format!("//{role}@"));
    assert_ne!(theirs, url);
    let error = refused(&theirs).await;
    assert!(matches!(&error, OpenError::NotAllowed { user, .. } if *user == role), "{error:?}");

    open(&url).await.close().await;
    let grant = format!(
        "GRANT USAGE ON SCHEMA backstop TO {role}; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA backstop TO {role}; \
         GRANT USAGE ON ALL SEQUENCES IN SCHEMA backstop TO {role}"
    );
    server.execute_in(&name, &grant).await;
    // As after a newer version made a table: what would fail in the middle of a run is said first.
    for (revoked, lacks) in [
        (format!("REVOKE DELETE ON backstop.inbox FROM {role}"), "inbox"),
        (format!("REVOKE USAGE ON SEQUENCE backstop.state_versions FROM {role}"), "state_versions"),
    ] {
        server.execute_in(&name, &revoked).await;
        let error = refused(&theirs).await;
        assert!(matches!(&error, OpenError::NotAllowed { .. }), "{error:?}");
        assert!(chain(&error).join(": ").ends_with(&format!("all of: {lacks}")), "{error:?}");
        server.execute_in(&name, &grant).await;
    }
    let database = open(&theirs).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    drop(begin(&log, "run_1", "s").await);
    assert_eq!(log.runs(RunFilter::new()).await.unwrap().len(), 1);
    database.close().await;
    server.execute_in(&name, &format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

/// Processes that open a new database at once make one schema.
#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_migrates() {
    let server = server!();
    let url = server.database().await;
    let opening: Vec<_> = (0..8)
        .map(|_| {
            let url = url.clone();
            tokio::spawn(async move { open(&url).await.close().await })
        })
        .collect();
    for opened in opening {
        opened.await.unwrap();
    }
}

/// The ids of transactions begin anew in a database that was restored elsewhere: events still come in order.
#[tokio::test(flavor = "multi_thread")]
async fn a_restored_database_counts_on() {
    let server = server!();
    let url = server.database().await;
    let database = open(&url).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    drop(begin(&log, "run_1", "s-1").await);
    database.close().await;
    // As if it had been written by a server that counted further.
    let moved = "UPDATE backstop.events SET place = place + (1::bigint << 50)";
    server.execute_in(&name_of(&url), moved).await;
    let database = open(&url).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let filter = backstop_event_log::EventFilter::new();
    let start = backstop_event_log::Cursor::start();
    let before = log.read_feed(&filter, &start).await.unwrap();
    assert_eq!(before.records.len(), 1, "what was restored is read");
    drop(begin(&log, "run_2", "s-2").await);
    let after = log.read_feed(&filter, &before.cursor).await.unwrap();
    assert_eq!(after.records.len(), 1, "and what comes after it stands behind it");
    database.close().await;
}

/// Spec: X2. Where the newest events were removed before a database was restored elsewhere, a follower that had read them
/// goes on too.
#[tokio::test(flavor = "multi_thread")]
async fn restored_database_counts_on_from_removed_events() {
    let server = server!();
    let url = server.database().await;
    open(&url).await.close().await;
    // All that the dump holds of a server that counted further.
    let removed = "UPDATE backstop.meta SET removed_until = (1::bigint << 50) + 7";
    server.execute_in(&name_of(&url), removed).await;
    let database = open(&url).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    drop(begin(&log, "run_1", "s-1").await);
    let filter = backstop_event_log::EventFilter::new();
    let cursor = backstop_event_log::Cursor::behind((1 << 50) + 7, None);
    let after = log.read_feed(&filter, &cursor).await.unwrap();
    assert_eq!(after.records.len(), 1, "what comes after it stands behind the cursor");
    database.close().await;
}
