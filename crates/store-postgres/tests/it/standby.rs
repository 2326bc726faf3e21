//! Followers at a hot standby.

use std::sync::Arc;

use backstop_event_log::{Cursor, EventFeed, EventFilter, EventLog, Log};
use backstop_store_postgres::{Database, Options};
use backstop_testkit::PostgresServer;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};

use crate::support::{begin, open, until};

/// An append that takes long: a copy of `run_1`.
const COPY: &str = "WITH made AS (INSERT INTO backstop.runs (run, session, started_at, last_seq, head, \
    summary, state, agent, epoch) SELECT 'run_slow', 's-slow', started_at, last_seq, head, summary, \
    state, agent, 1 FROM backstop.runs WHERE run = 'run_1' RETURNING id) \
    INSERT INTO backstop.events SELECT made.id, seq, \
    (pg_current_xact_id()::text::bigint << 20), at, type, actor, caused_by, schema, hash, data, salt, \
    erased FROM made, backstop.events WHERE run_id = (SELECT id FROM backstop.runs WHERE run = 'run_1')";

/// Spec: X2. A standby shows no locks of its primary: an append that is open there delays what came later.
#[tokio::test(flavor = "multi_thread")]
async fn follower_at_a_standby_skips_nothing() {
    let Some(primary) = PostgresServer::start() else { return };
    let url = primary.database().await;
    let database = open(&url).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    drop(begin(&log, "run_1", "s-1").await);
    let Some(standby) = primary.standby() else { return };
    let name = url.rsplit('/').next().unwrap();
    let reader =
        Database::connect_read_only(Options::new(&standby.url_of(name)).unwrap()).await.unwrap();
    let follower = reader.log();

    let options: PgConnectOptions = url.parse().unwrap();
    let mut one = options.connect().await.unwrap();
    let mut slow =
        one.begin_with("BEGIN; LOCK TABLE backstop.events IN ROW EXCLUSIVE MODE").await.unwrap();
    sqlx::query(AssertSqlSafe(COPY)).execute(&mut *slow).await.unwrap();
    let living = begin(&log, "run_2", "s-2").await;
    until("the standby has what came later", async || {
        follower.summary(&"run_2".into()).await.unwrap().is_some()
    })
    .await;
    let interrupted = reader.interrupted_runs().await.unwrap();
    assert!(!interrupted.contains_key("run_2"), "its process lives: {interrupted:?}");
    drop(living);
    let held = follower.read_feed(&EventFilter::new(), &Cursor::start()).await.unwrap();
    let runs = |page: &backstop_event_log::FeedPage| -> Vec<String> {
        page.records.iter().map(|it| it.run.to_string()).collect()
    };
    assert_eq!(runs(&held), ["run_1"], "what was appended later waits for what began earlier");
    slow.commit().await.unwrap();
    let mut cursor = held.cursor;
    let mut read = Vec::new();
    until("the standby has both", async || {
        let page = follower.read_feed(&EventFilter::new(), &cursor).await.unwrap();
        cursor = page.cursor;
        read.extend(runs(&page));
        read.len() >= 2
    })
    .await;
    assert_eq!(read, ["run_slow", "run_2"]);
    reader.close().await;
    database.close().await;
}
