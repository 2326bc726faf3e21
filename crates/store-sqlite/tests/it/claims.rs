//! Claims of runs under any name of the database, and the cost of waiting for them.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::{Claim, EventLog, Log, LogError, RunWriter, Seed};
use backstop_store_sqlite::{Database, Durability, OpenError};
use futures_util::future::join_all;
use layer0::event::Actor;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};

use crate::{Folder, at, open, started, write_run};

fn log_of(database: &Database) -> Arc<dyn EventLog> {
    Arc::new(database.log())
}

/// Stages and appends the first event of a run.
pub(crate) async fn begin(log: &Arc<dyn EventLog>, run: &str) -> RunWriter {
    let mut writer = RunWriter::new(Arc::clone(log), run.into());
    writer.stage(&Seed::new("test"), at(1), Actor::Runtime, None, started(&format!("ses_{run}")));
    writer.commit().await.unwrap();
    writer
}

/// Spec: D8
#[tokio::test]
async fn another_name_of_the_database_is_the_same() {
    let folder = Folder::new();
    let other = folder.file().with_file_name("other");
    symlink(folder.file().parent().unwrap(), &other).unwrap();
    let link = folder.file().with_file_name("link.db");
    symlink(folder.file(), &link).unwrap();
    let first = open(&folder.file()).await;
    let writer = begin(&log_of(&first), "run_1").await;
    for name in [link, other.join(folder.file().file_name().unwrap())] {
        let second = open(&name).await;
        let refused = second.log().claim(&"run_1".into()).await;
        assert!(matches!(refused, Err(LogError::Claimed(_))), "{}", name.display());
        second.close().await;
    }
    drop(writer);
    first.close().await;
}

/// Spec: D8
#[tokio::test]
async fn files_with_several_names_are_refused() {
    let folder = Folder::new();
    open(&folder.file()).await.close().await;
    let hard = folder.file().with_file_name("hard.db");
    std::fs::hard_link(folder.file(), &hard).unwrap();
    for name in [&hard, &folder.file()] {
        let refused = Database::open(name, Durability::Normal).await;
        assert!(matches!(refused, Err(OpenError::SeveralNames { .. })), "{}", name.display());
        let refused = Database::open_read_only(name).await;
        assert!(matches!(refused, Err(OpenError::SeveralNames { .. })), "{}", name.display());
    }
}

/// Names the file that [`opens_what_is_mounted_alone`] opens.
const MOUNTED: &str = "BACKSTOP_TEST_MOUNTED";

/// Opens a file in its own process, where it is mounted alone; otherwise it does nothing.
#[tokio::test]
async fn opens_what_is_mounted_alone() {
    let Some(path) = std::env::var_os(MOUNTED) else { return };
    match Database::open(Path::new(&path), Durability::Normal).await {
        Err(OpenError::SeveralNames { why, .. }) => println!("refused: {why}"),
        other => println!("not refused: {other:?}"),
    }
}

/// Spec: D8
#[tokio::test]
async fn a_file_mounted_alone_is_refused() {
    let folder = Folder::new();
    open(&folder.file()).await.close().await;
    let (from, to) = (folder.file(), folder.file().with_file_name("mounted.db"));
    std::fs::write(&to, "").unwrap();
    let script = "mount --bind \"$1\" \"$2\" && exec \"$3\" --exact claims::opens_what_is_mounted_alone --nocapture";
    let ran = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"])
        .args([&from, &to])
        .arg(std::env::current_exe().unwrap())
        .env(MOUNTED, &to)
        .output();
    match ran {
        Ok(ran) if ran.status.success() => {
            let said = String::from_utf8_lossy(&ran.stdout);
            assert!(said.contains("refused: it is mounted alone"), "{said}");
            assert!(!said.contains("not refused"), "{said}");
        }
        other => eprintln!("SKIPPED: nothing can be mounted here: {other:?}"),
    }
}

/// Spec: D8
#[tokio::test]
async fn open_runs_hold_no_descriptor() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    let log = log_of(&database);
    let descriptors = || std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let first = begin(&log, "run_first").await;
    let before = descriptors();
    let names: Vec<String> = (0..2_000).map(|number| format!("run_{number}")).collect();
    let writers = join_all(names.iter().map(|name| begin(&log, name))).await;
    // Other tests of this process open files too.
    assert!(descriptors() < before + 200, "{} after {before}", descriptors());
    drop((first, writers));
    database.close().await;
}

/// Spec: D8. The claim of a writer that is dropped ends behind its last append.
#[tokio::test]
async fn dropped_append_is_written_before_release() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    let log = log_of(&database);
    for round in 0..50 {
        let run = format!("run_{round}");
        let mut writer = begin(&log, &run).await;
        writer.stage(&Seed::new("test"), at(2), Actor::Runtime, None, started("s"));
        {
            let append = writer.commit();
            let mut append = std::pin::pin!(append);
            // Polled once: the append is queued, and its caller is dropped.
            let _ = futures_util::poll!(&mut append);
        }
        drop(writer);
        let claim = log.claim(&run.as_str().into()).await.unwrap();
        let summary = log.summary(&run.as_str().into()).await.unwrap().unwrap();
        let mut writer = RunWriter::resume(Arc::clone(&log), summary, claim);
        writer.stage(&Seed::new("test"), at(3), Actor::Runtime, None, started("s"));
        writer.commit().await.unwrap();
    }
}

/// Spec: D8. A claim whose caller goes away before it is given keeps no other process from the run.
#[tokio::test]
async fn a_dropped_claim_leaves_the_run_free() {
    let folder = Folder::new();
    let (one, other) = (open(&folder.file()).await, open(&folder.file()).await);
    for polls in 1..60 {
        let run = format!("run_{polls}");
        drop(begin(&log_of(&one), &run).await);
        // The claim that was dropped with the writer is released by then.
        drop(one.log().claim(&run.as_str().into()).await.unwrap());
        let (log, id) = (one.log(), run.as_str().into());
        {
            let mut claim = std::pin::pin!(log.claim(&id));
            for _ in 0..polls {
                // Dropped at another point each time.
                if futures_util::poll!(&mut claim).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        // After the queued jobs.
        begin(&log_of(&one), &format!("run_{polls}_after")).await;
        let claim = other.log().claim(&id).await;
        assert!(claim.is_ok(), "given up after {polls}: {claim:?}");
    }
}

/// Spec: S12. However many wait behind a lock, they wait together and share a commit.
#[tokio::test]
async fn appends_behind_a_lock_share_one_wait() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    let log = log_of(&database);
    let mut writers = Vec::new();
    for number in 0..8 {
        let mut writer = begin(&log, &format!("run_{number}")).await;
        writer.stage(&Seed::new("test"), at(2), Actor::Runtime, None, started("s"));
        writers.push(writer);
    }
    let options = SqliteConnectOptions::new().filename(folder.file());
    let mut other = options.connect().await.unwrap();
    let held = other.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let before = database.commits();
    let mut all = Box::pin(join_all(writers.iter_mut().map(RunWriter::commit)));
    let waiting = futures_util::poll!(&mut all);
    assert!(waiting.is_pending());
    let release = async {
        // The writer waits for the lock once it has taken the first of them.
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        held.rollback().await.unwrap();
    };
    let (appended, ()) = tokio::join!(all, release);
    assert!(appended.iter().all(Result::is_ok), "none is refused");
    assert!(database.commits() - before <= 2, "{} commits", database.commits() - before);
}

/// Spec: S12
#[tokio::test]
async fn a_refused_append_costs_no_further_commit() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    let log = log_of(&database);
    write_run(&log, "run_taken", "s", 2).await;
    let mut writers: Vec<RunWriter> = (0..40)
        .map(|number| {
            let run = if number == 7 { "run_taken".to_owned() } else { format!("run_{number}") };
            let mut writer = RunWriter::new(Arc::clone(&log), run.as_str().into());
            writer.stage(
                &Seed::new("test"),
                at(1),
                Actor::Runtime,
                None,
                started(&format!("ses_{run}")),
            );
            writer
        })
        .collect();
    let before = database.commits();
    let written = join_all(writers.iter_mut().map(RunWriter::commit)).await;
    let refused: Vec<usize> =
        written.iter().enumerate().filter(|(_, w)| w.is_err()).map(|(index, _)| index).collect();
    assert_eq!(refused, [7]);
    assert!(matches!(written[7], Err(LogError::Conflict { .. })));
    assert!(database.commits() - before <= 2, "{} commits", database.commits() - before);
}

/// Spec: D8. What is given back is the claim that wrote nothing, not the next one of the same run.
#[tokio::test]
async fn a_run_that_is_begun_again_stays_claimed() {
    let folder = Folder::new();
    let (one, other) = (open(&folder.file()).await, open(&folder.file()).await);
    let log = log_of(&one);
    drop(RunWriter::new(Arc::clone(&log), "run_1".into()));
    let _again = begin(&log, "run_1").await;
    let refused = other.log().claim(&"run_1".into()).await;
    assert!(matches!(refused, Err(LogError::Claimed(_))), "its owner lives");
}

/// Spec: D8. A process cannot write to a run once another one claimed it.
#[tokio::test]
async fn an_older_claim_writes_nothing_more() {
    let folder = Folder::new();
    let (one, other) = (open(&folder.file()).await, open(&folder.file()).await);
    let mut first = begin(&log_of(&one), "run_1").await;
    let refused = other.log().claim(&"run_1".into()).await;
    assert!(matches!(refused, Err(LogError::Claimed(_))), "its owner lives");
    // The state after the death of a process: the row names an owner that is gone.
    let options = SqliteConnectOptions::new().filename(folder.file());
    let mut connection = options.connect().await.unwrap();
    sqlx::query("UPDATE runs SET owner = 'dead'").execute(&mut connection).await.unwrap();
    let claim = other.log().claim(&"run_1".into()).await.unwrap();
    assert!(claim.epoch() > Claim::FIRST);
    first.stage(&Seed::new("test"), at(2), Actor::Runtime, None, started("s"));
    assert!(matches!(first.commit().await, Err(LogError::Conflict { .. })));
}

/// Spec: D11. What the row of an earlier run says keeps no session from going on.
#[tokio::test]
async fn an_unreadable_run_can_be_followed() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    let log = log_of(&database);
    drop(begin(&log, "run_1").await);
    let session = "ses_run_1".into();
    let whole = log.last_root(&session).await.unwrap().unwrap();
    let options = SqliteConnectOptions::new().filename(folder.file());
    let mut connection = options.connect().await.unwrap();
    let broken = "UPDATE runs SET summary = '{', state = 'finished'";
    sqlx::query(broken).execute(&mut connection).await.unwrap();
    let left = log.last_root(&session).await.unwrap().unwrap();
    assert_eq!((&left.run, left.last_seq, left.head), (&whole.run, whole.last_seq, whole.head));
    assert!(!left.is_open());
    let mut next = RunWriter::new(Arc::clone(&log), "run_2".into());
    let mut follows = started("ses_run_1");
    if let layer0::event::EventKind::RunStarted(started) = &mut follows {
        started.follows = Some(Box::new(layer0::event::Follows::new(
            left.run,
            left.last_seq,
            left.head,
            left.messages,
        )));
    }
    next.stage(&Seed::new("test"), at(2), Actor::Runtime, None, follows);
    next.commit().await.unwrap();
}

/// Spec: D13. A run is found by columns, and what they say is part of its record.
#[tokio::test]
async fn changed_columns_of_a_run_are_found() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    let log = log_of(&database);
    let run = "run_1".into();
    drop(begin(&log, "run_1").await);
    let options = SqliteConnectOptions::new().filename(folder.file());
    let mut connection = options.connect().await.unwrap();
    let started_at: i64 =
        sqlx::query_scalar("SELECT started_at FROM runs").fetch_one(&mut connection).await.unwrap();
    let started_at = format!("started_at = {started_at}");
    for (change, back) in [
        ("state = 'failed'", "state = 'running'"),
        ("session = 'other'", "session = 'ses_run_1'"),
        ("started_at = started_at + 1", started_at.as_str()),
    ] {
        backstop_event_log::verify_run(&*log, &run).await.unwrap();
        let change = sqlx::AssertSqlSafe(format!("UPDATE runs SET {change}"));
        sqlx::query(change).execute(&mut connection).await.unwrap();
        let found = backstop_event_log::verify_run(&*log, &run).await;
        assert!(matches!(found, Err(LogError::Tampered { .. })), "{found:?}");
        let back = sqlx::AssertSqlSafe(format!("UPDATE runs SET {back}"));
        sqlx::query(back).execute(&mut connection).await.unwrap();
    }
}

/// Spec: C4. What is no file is refused at once.
#[tokio::test]
async fn a_pipe_is_no_database() {
    let folder = Folder::new();
    let made = Command::new("mkfifo").arg(folder.file()).status().unwrap();
    assert!(made.success());
    for opened in [
        Database::open(folder.file(), Durability::Normal).await.map(drop),
        Database::open_read_only(folder.file()).await.map(drop),
    ] {
        assert!(matches!(opened, Err(OpenError::Unreadable { .. })), "{opened:?}");
    }
}

/// Spec: E10. What runs said is for their owner's eyes only.
#[tokio::test]
async fn only_its_owner_reads_a_store() {
    let folder = Folder::new();
    let file = folder.file().with_file_name("deep").join("a.db");
    let database = open(&file).await;
    let _writer = begin(&log_of(&database), "run_1").await;
    let folder = file.parent().unwrap();
    assert_eq!(std::fs::metadata(folder).unwrap().mode() & 0o777, 0o700);
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{:?}", entry.file_name());
    }
}

/// Spec: D8. Opening a database of this version waits for no lock.
#[tokio::test]
async fn a_locked_database_opens() {
    let folder = Folder::new();
    open(&folder.file()).await.close().await;
    let options = SqliteConnectOptions::new().filename(folder.file());
    let mut other = options.connect().await.unwrap();
    let held = other.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let database = open(&folder.file()).await;
    assert!(database.log().summary(&"run_1".into()).await.unwrap().is_none());
    held.rollback().await.unwrap();
}

/// Spec: D8. A run is freed although another process's lock was in the way when its writer was dropped.
#[tokio::test]
async fn a_release_outlives_a_lock() {
    let folder = Folder::new();
    let (one, two) = (open(&folder.file()).await, open(&folder.file()).await);
    let log = log_of(&one);
    let (writer, mut other_writer) = (begin(&log, "run_1").await, begin(&log, "run_2").await);
    let options = SqliteConnectOptions::new().filename(folder.file());
    let mut other = options.connect().await.unwrap();
    let held = other.begin_with("BEGIN IMMEDIATE").await.unwrap();
    drop(writer);
    // It is queued after the release, which has met the lock when this is refused.
    other_writer.stage(&Seed::new("test"), at(2), Actor::Runtime, None, started("s"));
    assert!(matches!(other_writer.commit().await, Err(LogError::Locked(_))));
    held.rollback().await.unwrap();
    // Twenty times as long as the writer's delay before a retry.
    for _ in 0..500 {
        match two.log().claim(&"run_1".into()).await {
            Err(LogError::Claimed(_)) => SystemClock.sleep(Duration::from_millis(20)).await,
            freed => return drop(freed.unwrap()),
        }
    }
    panic!("the run stays claimed");
}
