//! The server that all processes of one test run share.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::process::{CommandExt, parent_id};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use sqlx::{AssertSqlSafe, Executor};

use backstop_clock::{Clock, SystemClock};

use super::launch::Launch;
use super::waiting;

/// Script that waits until the process of the run is gone or a zombie, and removes the file of the run. Its output,
/// which is empty, is the standard input of the server's keeper: it ends here, and the server with it.
const WATCHER: &str = r#"
run=$1; file=$2
while kill -0 "$run" 2>/dev/null && ! grep -q ') Z ' "/proc/$run/stat" 2>/dev/null; do sleep 0.5; done
rm -f "$file"
"#;

/// A run of `cargo test`, or of another program that cargo runs and that starts test processes. Its file contains the
/// URL of its server, and is locked by one process at a time, until this is dropped.
#[derive(Debug)]
pub(super) struct TestRun {
    process: u32,
    path: PathBuf,
    file: File,
}

impl TestRun {
    /// Returns the run of this process. `None` if cargo has not started it, its parent is gone, or the file cannot be
    /// used.
    pub(super) fn current() -> Option<Self> {
        std::env::var_os("CARGO")?;
        let process = parent_id();
        if process <= 1 {
            return None;
        }
        let path = path_of(process);
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.ok()?;
        file.lock().ok()?;
        Some(Self { process, path, file })
    }

    /// Returns the URL of the server of the run. The first process that asks starts it, for the duration of the run; so
    /// does a later one if it no longer answers.
    pub(super) fn server(mut self, launch: impl FnOnce() -> Option<Launch>) -> Option<String> {
        let mut earlier = String::new();
        // An unreadable file has no URL.
        let _ = self.file.read_to_string(&mut earlier);
        if !earlier.is_empty() && waiting::answers(&administration(&earlier)) {
            remove_old_databases(&earlier);
            return Some(earlier);
        }
        let (_, url) = launch()?.launch_until(self.end());
        waiting::until_it_answers("the server", &administration(&url));
        self.file.set_len(0).expect("the file can be emptied");
        self.file.rewind().expect("the file has a beginning");
        self.file.write_all(url.as_bytes()).expect("the file can be written");
        Some(url)
    }

    /// Returns an input that ends with the run.
    #[expect(clippy::zombie_processes, reason = "the watcher outlives this process")]
    fn end(&self) -> Stdio {
        let (end, writer) = std::io::pipe().expect("a pipe can be made");
        let mut watcher = Command::new("sh");
        watcher.args(["-c", WATCHER, "sh", &self.process.to_string()]).arg(&self.path);
        watcher.stdin(Stdio::null()).stdout(writer).stderr(Stdio::null()).current_dir("/");
        // A group of its own: an interrupted or killed group of one test does not affect the other tests.
        watcher.process_group(0).spawn().expect("a shell can be run");
        end.into()
    }
}

/// Returns the file of a run. Its name contains the start time of the process, if the system reports it, because
/// process numbers are reused.
fn path_of(process: u32) -> PathBuf {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The fields after the name of the program, which may contain spaces; the time is the 20th of these fields.
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let began = after_name.split_whitespace().nth(19).unwrap_or("0");
    std::env::temp_dir().join(format!("backstop-postgres-run-{process}-{began}"))
}

fn administration(url: &str) -> String {
    format!("{url}/postgres")
}

/// Time for which the first test of a process waits for the removal of databases: a busy server takes a second for
/// each.
const REMOVING: Duration = Duration::from_secs(3);

/// Removes databases of processes that have ended: all databases of a run together would fill a small disk.
fn remove_old_databases(url: &str) {
    waiting::connected(&administration(url), async |mut connection| {
        let names = r"SELECT datname::text FROM pg_database WHERE datname LIKE 'test\_%'";
        let names: Vec<String> =
            sqlx::query_scalar(names).fetch_all(&mut connection).await.unwrap_or_default();
        let end = SystemClock.now().after(REMOVING);
        for name in names {
            if SystemClock.now() < end && is_over(name.split('_').nth(1).unwrap_or_default()) {
                let remove = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
                // A database that cannot be removed disturbs no test.
                let _ = connection.execute(sqlx::raw_sql(AssertSqlSafe(remove))).await;
            }
        }
    });
}

fn is_over(process: &str) -> bool {
    let mut kill = Command::new("kill");
    let kill = kill.args(["-0", process]).stdout(Stdio::null()).stderr(Stdio::null());
    kill.status().is_ok_and(|status| !status.success())
}

#[cfg(test)]
mod tests;
