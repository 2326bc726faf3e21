//! The cost of a conditional write of state, compared with the same write in its own transaction: one connection behind
//! a lock, and the same table without the index of words.
//!
//! `cargo bench -p backstop-store-sqlite --bench state`; with `-- --quick` for a short run.

#![allow(clippy::print_stdout, reason = "a program speaks to its terminal")]

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use backstop_store_sqlite::{Database, Durability};
use backstop_testkit::measure::{Goal, Row, Spread, now, ratios};
use futures_util::future::join_all;
use layer0::StateStore;
use layer0::state::{Expected, Scope, StateWrite};
use serde_json::json;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, Executor, SqliteConnection};
use tokio::runtime::Runtime;
use tokio::sync::Mutex;

/// Number of writes in a round, and number of rounds.
struct Effort {
    rounds: usize,
    writes: u64,
}

const FULL: Effort = Effort { rounds: 15, writes: 2_048 };
const QUICK: Effort = Effort { rounds: 3, writes: 512 };

fn main() -> ExitCode {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let effort = if quick { QUICK } else { FULL };
    let runtime = Runtime::new().expect("a runtime can be made");
    let rows = runtime.block_on(async {
        let mut rows = Vec::new();
        for durability in [Durability::Full, Durability::Normal] {
            for writers in [1, 64] {
                rows.push(compared(&effort, durability, writers).await);
            }
        }
        rows
    });
    println!("{}", Row::HEAD);
    rows.iter().for_each(|row| println!("{row}"));
    if rows.iter().all(Row::is_met) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Conditional writes a second of this many writers, relative to those of the common design.
async fn compared(effort: &Effort, durability: Durability, writers: u64) -> Row {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("ours.db");
    let ours = Database::open(path, durability).await.expect("a new file opens");
    let common = Arc::new(Mutex::new(common(&folder.path().join("common.db"), durability).await));
    let (mut taken, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..effort.rounds {
        let began = now();
        join_all((0..writers).map(|writer| write_ours(&ours, writer, effort.writes / writers)))
            .await;
        taken.push(began.elapsed());
        let began = now();
        let writes = (0..writers).map(|writer| {
            tokio::spawn(write_common(Arc::clone(&common), writer, effort.writes / writers))
        });
        join_all(writes).await.into_iter().for_each(|done| done.expect("nothing fails"));
        beside.push(began.elapsed());
    }
    ours.close().await;
    let name = match durability {
        Durability::Full => "full",
        _ => "normal",
    };
    let name = format!("`{name}`, conditional writes a second, {writers} at once");
    // Writes a second are the inverse of the time.
    let goal = if writers == 64 { Goal::AtLeast(8.0) } else { Goal::None };
    Row::new(name, Spread::of(ratios(&beside, &taken)), goal)
}

/// Writes one key repeatedly, each time over its previous version.
async fn write_ours(database: &Database, writer: u64, writes: u64) {
    let (state, key) = (database.state(), format!("writer-{writer}"));
    let mut expected = Expected::Any;
    for number in 0..writes {
        let write = StateWrite::new(Scope::Global, &*key, json!({ "count": number }));
        let version = state.write(write.expecting(expected)).await.expect("it is written");
        expected = Expected::Version(version);
    }
}

async fn common(path: &Path, durability: Durability) -> SqliteConnection {
    let synchronous = match durability {
        Durability::Full => SqliteSynchronous::Full,
        _ => SqliteSynchronous::Normal,
    };
    let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
    let options = options.journal_mode(SqliteJournalMode::Wal).synchronous(synchronous);
    let options = options.busy_timeout(Duration::from_secs(5)).disable_statement_logging();
    let mut connection = options.connect().await.expect("a new file opens");
    let table = "CREATE TABLE state (scope TEXT, key TEXT, version INTEGER, value TEXT, \
                 PRIMARY KEY (scope, key))";
    connection.execute(table).await.expect("the table is made");
    connection
}

async fn write_common(connection: Arc<Mutex<SqliteConnection>>, writer: u64, writes: u64) {
    let key = format!("writer-{writer}");
    for number in 0..writes {
        let mut connection = connection.lock().await;
        let mut transaction = connection.begin().await.expect("it begins");
        let found: Option<i64> =
            sqlx::query_scalar("SELECT version FROM state WHERE scope = 'global' AND key = $1")
                .bind(&key)
                .fetch_optional(&mut *transaction)
                .await
                .expect("it is read");
        sqlx::query("INSERT OR REPLACE INTO state VALUES ('global', $1, $2, $3)")
            .bind(&key)
            .bind(found.unwrap_or_default() + 1)
            .bind(json!({ "count": number }).to_string())
            .execute(&mut *transaction)
            .await
            .expect("it is written");
        transaction.commit().await.expect("it is written");
    }
}
