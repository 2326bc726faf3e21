//! Use of the disk: the size of an event, syncs of durable appends, and errors if there is no room.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use backstop_error_store::ErrorStore;
use backstop_event_log::{EventLog, RunWriter, Seed, read_events};
use backstop_store_sqlite::{Database, Durability};
use layer0::Timestamp;
use layer0::event::{Actor, Warning};
use layer0::failure::Failure;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};

use crate::{error, write_run};

/// Appends this many events one by one, with these numbers of characters in turn, and returns the bytes of their
/// payload.
async fn append(path: &Path, durability: Durability, events: usize, chars: &[usize]) -> usize {
    let database = Database::open(path, durability).await.unwrap();
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let mut writer = RunWriter::new(Arc::clone(&log), "run_1".into());
    for chars in chars.iter().cycle().take(events) {
        let at = Timestamp::from_millis(1_767_225_600_000);
        let message = "x".repeat(*chars);
        writer.stage(&Seed::new("test"), at, Actor::Machine, Some(1), Warning::new(message).into());
        writer.commit().await.unwrap();
    }
    let (_, read) = read_events(&*log, &"run_1".into()).await.unwrap();
    assert_eq!(read.len(), events);
    let records = log.records(&"run_1".into(), 1).await.unwrap();
    database.close().await;
    records.iter().map(|record| record.payload.text().unwrap().len()).sum()
}

/// Returns the number of used bytes of a database; migrations leave free pages behind.
async fn used(path: &Path) -> usize {
    let mut connection = SqliteConnectOptions::new().filename(path).connect().await.unwrap();
    let statement = "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, \
        pragma_freelist_count, pragma_page_size";
    let bytes: i64 = sqlx::query_scalar(statement).fetch_one(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    usize::try_from(bytes).unwrap()
}

#[tokio::test]
async fn event_overhead_is_150_bytes_at_most() {
    let folder = tempfile::tempdir().unwrap();
    // A page without room for the next event stays as it is, so that large events of one size may take more.
    let sizes: [&[usize]; 4] = [&[20], &[200], &[400], &[20, 200, 80, 600, 120, 1_500, 60, 300]];
    for chars in sizes {
        let path = folder.path().join(format!("{}-{}.db", chars.len(), chars[0]));
        Database::open(&path, Durability::Normal).await.unwrap().close().await;
        let empty = used(&path).await;
        let events = 1_000;
        let payload = append(&path, Durability::Normal, events, chars).await;
        let grown = used(&path).await - empty;
        let beyond = (grown - payload) / events;
        println!("{chars:?}: {beyond}");
        assert!(beyond <= 150, "{chars:?} characters: {beyond} bytes beyond the payload");
    }
}

/// The file that [`appends_for_the_count`] writes to, and the durability.
const COUNTED: &str = "BACKSTOP_TEST_COUNTED";
/// Number of counted appends.
const APPENDS: usize = 50;

/// Appends in its own process, where syncs can be counted; otherwise it does nothing.
#[tokio::test]
async fn appends_for_the_count() {
    let Some(path) = std::env::var_os(COUNTED).map(PathBuf::from) else { return };
    let full = path.ends_with("full.db");
    let durability = if full { Durability::Full } else { Durability::Normal };
    append(&path, durability, APPENDS, &[20]).await;
}

/// Returns the number of syncs of a process that appends.
fn syncs(folder: &Path, name: &str) -> usize {
    let calls = folder.join("calls");
    let status = Command::new("strace")
        .args(["-f", "-e", "trace=fsync,fdatasync", "-o"])
        .arg(&calls)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "disk::appends_for_the_count"])
        .env(COUNTED, folder.join(name))
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    let calls = std::fs::read_to_string(calls).unwrap();
    // A call that another thread interrupts has a second line with `resumed`.
    let is_call = |line: &&str| line.contains("fsync(") || line.contains("fdatasync(");
    calls.lines().filter(is_call).count()
}

/// Spec: D3
#[test]
fn full_durability_syncs_before_acknowledging() {
    let strace = Command::new("strace").arg("-V").stdout(Stdio::null()).status();
    if !strace.is_ok_and(|status| status.success()) {
        println!("skipped: no strace");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (full, normal) = (syncs(folder.path(), "full.db"), syncs(folder.path(), "normal.db"));
    assert!(full >= APPENDS, "{full} syncs of {APPENDS} appends");
    assert!(normal < APPENDS, "{normal} syncs of {APPENDS} appends at normal durability");
}

/// The file that [`stores_without_room`] writes to.
const LIMITED: &str = "BACKSTOP_TEST_LIMITED";

/// Stores several errors in one commit, some of which do not fit, in its own process whose files must not grow;
/// otherwise it does nothing.
#[tokio::test]
async fn stores_without_room() {
    let Some(path) = std::env::var_os(LIMITED) else { return };
    let database = Database::open(Path::new(&path), Durability::Normal).await.unwrap();
    let (errors, log) = (database.errors(), Arc::new(database.log()) as Arc<dyn EventLog>);
    let long = |name: &str| error("s-1", name, &name.repeat(3_000_000));
    let (small, first, (), second) = tokio::join!(
        errors.store(error("s-1", "c1", "small")),
        errors.store(long("a")),
        write_run(&log, "run_1", "s-1", 3),
        errors.store(long("b")),
    );
    small.unwrap();
    for failed in [first, second] {
        let failed = failed.unwrap_err();
        assert_eq!(failed.code(), "store.full", "{failed:?}");
        let source = failed.source().unwrap().to_string();
        assert!(source.contains("full") || source.contains("I/O"), "{source}");
    }
    assert_eq!(read_events(&*log, &"run_1".into()).await.unwrap().1.len(), 3);
    database.close().await;
}

/// Spec: S6, E5. The database ends the whole transaction when there is no room; each job is told how it fared.
#[cfg(unix)]
#[test]
fn a_full_disk_is_told_to_each_job() {
    let folder = tempfile::tempdir().unwrap();
    // An ignored signal stays ignored in the executed program.
    let limited = "trap '' XFSZ; ulimit -f 4000; exec \"$0\" --exact disk::stores_without_room";
    let ended = Command::new("sh")
        .args(["-c", limited])
        .arg(std::env::current_exe().unwrap())
        .env(LIMITED, folder.path().join("x.db"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && said.contains("1 passed"), "{said}");
}
