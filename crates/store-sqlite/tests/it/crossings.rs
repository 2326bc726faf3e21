//! Number of round trips of an append to SQLite's thread, which sleeps before each one.

use std::process::Command;
use std::sync::Arc;

use backstop_event_log::{RunWriter, Seed};
use backstop_store_sqlite::{Database, Durability};
use layer0::event::Actor;

use crate::{Folder, at, started};

/// Returns how often SQLite's threads went to sleep.
fn sleeps() -> u64 {
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let threads = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let of_sqlite = threads.filter(|task| read(task.join("comm")).starts_with("sqlx-sqlite"));
    let sleeps = of_sqlite.map(|task| {
        let status = read(task.join("status"));
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse::<u64>().unwrap()
    });
    sleeps.sum()
}

/// The file that [`appends_that_count_crossings`] writes to.
const COUNTED: &str = "BACKSTOP_TEST_CROSSINGS";

/// Appends in its own process, which has no other threads of SQLite; otherwise it does nothing.
#[tokio::test]
async fn appends_that_count_crossings() {
    const APPENDS: u64 = 400;
    let Some(path) = std::env::var_os(COUNTED) else { return };
    let database = Database::open(&path, Durability::Normal).await.unwrap();
    let mut writer = RunWriter::new(Arc::new(database.log()), "run_1".into());
    let mut append = async || {
        writer.stage(&Seed::new("test"), at(1), Actor::Runtime, None, started("s"));
        assert_eq!(writer.commit().await.unwrap().count(), 1);
    };
    append().await;
    let before = sleeps();
    for _ in 0..APPENDS {
        append().await;
    }
    let crossings = sleeps() - before;
    assert!(crossings < 2 * APPENDS, "{crossings} for {APPENDS} appends");
    database.close().await;
}

/// Spec: D9
#[test]
fn append_crosses_to_sqlite_once() {
    let folder = Folder::new();
    let ran = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crossings::appends_that_count_crossings"])
        .env(COUNTED, folder.file())
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
}
