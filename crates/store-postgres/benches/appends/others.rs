//! Appends without the store: to tables with the same columns, keys and conditions.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use backstop_testkit::measure::now;
use futures_util::future::join_all;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

/// The payload of an event.
pub(crate) const TEXT: &str =
    "The quick brown fox jumps over the lazy dog, and then it does so once more, for good measure.";
/// Number of connections that the callers share.
const CONNECTIONS: u32 = 16;
/// Number of events that one writer collects.
const BATCH: usize = 64;

/// Updates the head of each run and inserts its event, if the run ends just before it.
const APPEND: &str = "WITH moved AS (UPDATE runs SET last_seq = new.seq, head = new.hash, summary = new.data \
    FROM unnest($1::text[], $2::bigint[], $3::bytea[], $4::text[]) AS new (run, seq, hash, data) \
    WHERE runs.run = new.run AND runs.last_seq = new.seq - 1 \
    RETURNING runs.id, new.seq, new.hash, new.data) \
    INSERT INTO events (run_id, seq, place, at, type, actor, caused_by, schema, hash, data, salt) \
    SELECT id, seq, nextval('places'), 0, 'warning', 'runtime', NULL, 1, hash, data, hash FROM moved";

const TABLES: &str = "CREATE TABLE runs (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, \
    run text COLLATE \"C\" NOT NULL UNIQUE, last_seq bigint NOT NULL, head bytea NOT NULL, summary text NOT NULL) \
    WITH (fillfactor = 70); \
    CREATE SEQUENCE places; \
    CREATE TABLE events (run_id bigint NOT NULL, seq bigint NOT NULL, place bigint NOT NULL UNIQUE, \
    at bigint NOT NULL, type text NOT NULL, actor text NOT NULL, caused_by bigint, schema bigint NOT NULL, \
    hash bytea NOT NULL, data text NOT NULL, salt bytea, PRIMARY KEY (run_id, seq)); \
    INSERT INTO runs (run, last_seq, head, summary) SELECT 'run_' || number, 0, '', '' \
    FROM generate_series(0, 255) AS number";

pub(crate) struct Others {
    pool: PgPool,
    one: PgPool,
    last: Vec<AtomicI64>,
}

impl Others {
    pub(crate) async fn new(url: &str) -> Self {
        let connect = async |connections: u32| {
            let options =
                PgPoolOptions::new().max_connections(connections).min_connections(connections);
            options.connect(url).await.expect("the database is there")
        };
        let (pool, one) = (connect(CONNECTIONS).await, connect(1).await);
        sqlx::raw_sql(TABLES).execute(&one).await.expect("tables can be made");
        Self { pool, one, last: (0..256).map(|_| AtomicI64::new(0)).collect() }
    }

    /// Appends the next event of some runs; returns the number of appended events.
    async fn append(&self, pool: &PgPool, runs: &[usize]) -> u32 {
        let names: Vec<String> = runs.iter().map(|run| format!("run_{run}")).collect();
        let seqs: Vec<i64> =
            runs.iter().map(|run| self.last[*run].fetch_add(1, Ordering::Relaxed) + 1).collect();
        let hashes: Vec<Vec<u8>> = runs.iter().map(|_| vec![7; 32]).collect();
        let texts: Vec<&str> = runs.iter().map(|_| TEXT).collect();
        let appended = sqlx::query(APPEND).bind(names).bind(seqs).bind(hashes).bind(texts);
        let appended = appended.execute(pool).await.expect("they are appended");
        assert_eq!(
            appended.rows_affected(),
            runs.len() as u64,
            "each run was where it was expected"
        );
        u32::try_from(runs.len()).expect("a few")
    }

    /// Repeats a step with this many concurrent tasks; returns the time per append of all together.
    async fn time(
        &self,
        callers: usize,
        time: Duration,
        step: impl AsyncFn(usize) -> u32,
    ) -> Duration {
        let (began, step) = (now(), &step);
        let counts = join_all((0..callers).map(|caller| async move {
            let mut count = 0;
            while began.elapsed() < time {
                count += step(caller).await;
            }
            count
        }));
        let count: u32 = counts.await.into_iter().sum();
        began.elapsed() / count
    }

    /// Callers that share connections, each with its own run.
    pub(crate) async fn pooled(&self, callers: usize, time: Duration) -> Duration {
        self.time(callers, time, async |run| self.append(&self.pool, &[run]).await).await
    }

    /// One connection, one event after the other.
    pub(crate) async fn alone(&self, time: Duration) -> Duration {
        self.time(1, time, async |run| self.append(&self.one, &[run]).await).await
    }

    /// One connection, whose statements each append to 64 runs.
    pub(crate) async fn batched(&self, time: Duration) -> Duration {
        let runs: Vec<usize> = (0..BATCH).collect();
        self.time(1, time, async |_| self.append(&self.one, &runs).await).await
    }
}
