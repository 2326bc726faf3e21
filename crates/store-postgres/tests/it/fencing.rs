//! One writer for each run, whatever happens to its process.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::{EventLog, Log, LogError, RunWriter, Runs, read_events};
use backstop_store_postgres::{Database, Options};
use layer0::event::{RunFinished, Warning};
use layer0::failure::Failure;
use layer0::stop::Outcome;
use layer0::usage::Usage;

use crate::support::{
    append, begin, connection, fresh, open, resume, server, started_below, until,
};

/// Database and lease for the test that acts as another process.
const URL: &str = "BACKSTOP_TEST_WRITER_URL";
const LEASE: &str = "BACKSTOP_TEST_WRITER_LEASE_MS";

/// Another process that writes to `run_1` as fast as it may, and prints what it did.
#[tokio::test]
async fn writer_process() {
    let Ok(url) = std::env::var(URL) else { return };
    let lease: u64 = std::env::var(LEASE).unwrap().parse().unwrap();
    let options = Options::new(&url).unwrap().lease(Duration::from_millis(lease)).connections(2);
    let database = Database::connect_with(options).await.unwrap();
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let mut writer = begin(&log, "run_1", "s").await;
    loop {
        match append(&mut writer, Warning::new("by the other process").into()).await {
            Ok(seq) => println!("appended {seq}"),
            Err(error) => {
                println!("refused {} {}", error.code(), matches!(error, LogError::LeaseEnded(_)));
                return;
            }
        }
        if writer.lease().is_some_and(|lease| lease.may_start()) {
            println!("acts");
        }
        SystemClock.sleep(Duration::from_millis(5)).await;
    }
}

/// Another process and its output.
pub(crate) struct Other {
    child: Child,
    lines: std::sync::mpsc::Receiver<String>,
}

impl Other {
    pub(crate) fn start(url: &str, lease: Duration) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "fencing::writer_process", "--nocapture"])
            .env(URL, url)
            .env(LEASE, lease.as_millis().to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = std::sync::mpsc::channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, lines }
    }

    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([format!("-{signal}"), pid]).status().unwrap().success());
    }

    /// Kills it with a signal that it cannot handle.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until it prints a line with this prefix.
    pub(crate) fn says(&self, begins: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(Duration::from_secs(60)).expect(begins);
            if line.starts_with(begins) {
                return line;
            }
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn finished() -> layer0::event::EventKind {
    RunFinished::new(Outcome::Completed, "done", Usage::default()).into()
}

/// Spec: J2. Its lease would last for an hour: the lock says that it is dead.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_process_frees_its_runs_at_once() {
    let server = server!();
    let url = server.database().await;
    let database = open(&url).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let mut other = Other::start(&url, Duration::from_secs(3600));
    other.says("acts");
    let refused = log.claim(&"run_1".into()).await;
    assert!(matches!(refused, Err(LogError::Claimed(_))), "it lives: {refused:?}");
    other.kill();
    let mut writer = resume(&log, "run_1").await;
    append(&mut writer, finished()).await.unwrap();
    let (summary, events) = read_events(&*log, &"run_1".into()).await.unwrap();
    assert_eq!(events.len() as u64, summary.last_seq);
    database.close().await;
}

/// Spec: J2
#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_process_that_wakes_writes_nothing() {
    let server = server!();
    let url = server.database().await;
    let database = open(&url).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let other = Other::start(&url, Duration::from_secs(1));
    other.says("acts");
    other.signal("STOP");
    // Its connection and its lock remain: only its lease ends.
    let mut writer = resume(&log, "run_1").await;
    let taken_at = writer.summary().last_seq;
    append(&mut writer, Warning::new("by the new one").into()).await.unwrap();
    while other.lines.try_recv().is_ok() {}
    other.signal("CONT");
    let line = other.lines.recv_timeout(Duration::from_secs(60)).unwrap();
    let refused = match line.starts_with("appended") {
        // A line from before the process was stopped.
        true => other.lines.recv_timeout(Duration::from_secs(60)).unwrap(),
        false => line,
    };
    assert!(refused.starts_with("refused log.append_failed"), "{refused}");
    append(&mut writer, finished()).await.unwrap();
    let (summary, events) = read_events(&*log, &"run_1".into()).await.unwrap();
    assert_eq!(summary.last_seq, taken_at + 2, "{events:#?}");
    database.close().await;
}

/// Spec: J2. A process whose lease has ended goes on with nothing, also where no other took over.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_ended_is_not_renewed() {
    let server = server!();
    let url = server.database().await;
    let other = Other::start(&url, Duration::from_secs(1));
    other.says("acts");
    other.signal("STOP");
    SystemClock.sleep(Duration::from_millis(1_500)).await;
    while other.lines.try_recv().is_ok() {}
    other.signal("CONT");
    let line = other.says("");
    let refused = if line.starts_with("appended") { other.says("") } else { line };
    assert_eq!(refused, "refused log.append_failed true");
}

/// Spec: J2, D8. A child that a stale process begins is refused: another has the tree.
#[tokio::test(flavor = "multi_thread")]
async fn an_overtaken_caller_begins_no_child() {
    let server = server!();
    let url = server.database().await;
    let (one, two) = (open(&url).await, open(&url).await);
    let log: Arc<dyn EventLog> = Arc::new(one.log());
    drop(begin(&log, "run_1", "s").await);
    let other: Arc<dyn EventLog> = Arc::new(two.log());
    let _writer = resume(&other, "run_1").await;
    let mut child = RunWriter::new(Arc::clone(&log), "run_2".into());
    let refused = append(&mut child, started_below("s", "run_2", "run_1")).await;
    assert!(matches!(refused, Err(LogError::Conflict { .. })), "{refused:?}");
    assert_eq!(other.summary(&"run_2".into()).await.unwrap(), None);
}

/// Spec: J2. Another process lives that has no run of the one that is asked for.
#[tokio::test(flavor = "multi_thread")]
async fn eight_handles_share_one_database() {
    let server = server!();
    let url = server.database().await;
    let mut handles = Vec::new();
    for _ in 0..8 {
        handles.push(open(&url).await);
    }
    let writing = handles.iter().enumerate().map(|(number, database)| {
        let log: Arc<dyn EventLog> = Arc::new(database.log());
        tokio::spawn(async move {
            for round in 0..10 {
                let run = format!("run_{number}_{round}");
                let mut writer = begin(&log, &run, &format!("s-{number}-{round}")).await;
                for _ in 0..10 {
                    append(&mut writer, Warning::new("x").into()).await.unwrap();
                }
                append(&mut writer, finished()).await.unwrap();
            }
        })
    });
    for done in writing.collect::<Vec<_>>() {
        done.await.unwrap();
    }
    let log = handles[0].log();
    let runs = log.runs(backstop_event_log::RunFilter::new()).await.unwrap();
    assert_eq!(runs.len(), 80);
    for run in runs {
        let (summary, events) = read_events(&log, &run.run).await.unwrap();
        assert_eq!((summary.last_seq, events.len()), (12, 12));
    }
    for database in handles {
        database.close().await;
    }
}

/// Spec: D8. What is closed leaves no process behind for which others wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_closed_database_owns_nothing() {
    let server = server!();
    let database = fresh(server).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let writer = begin(&log, "run_1", "s").await;
    database.close().await;
    let closed = log.claim(&"run_1".into()).await;
    assert!(matches!(closed, Err(LogError::Closed)), "{closed:?}");
    drop(writer);
}

/// Spec: J2. A living process whose connection with the lock breaks holds the lock again before another one looks
/// again, and keeps its runs.
#[tokio::test(flavor = "multi_thread")]
async fn lost_lock_is_held_again_in_time() {
    let server = server!();
    let url = server.database().await;
    let (holder, other) = (open(&url).await, open(&url).await);
    let log: Arc<dyn EventLog> = Arc::new(holder.log());
    let mut writer = begin(&log, "run_1", "s").await;
    let mut killing = connection(&url).await;
    let lock: i64 = sqlx::query_scalar("SELECT lock FROM backstop.processes")
        .fetch_one(&mut killing)
        .await
        .unwrap();
    for _ in 0..3 {
        // On a busy machine it may be about to take its lock again.
        let mut killed = 0_i64;
        while killed == 0 {
            killed = sqlx::query_scalar(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE locktype = 'advisory' AND granted \
                 AND objsubid = 1 AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
                 AND classid::bigint = ($1 >> 32) & 4294967295 AND objid::bigint = $1 & 4294967295",
            )
            .bind(lock)
            .fetch_one(&mut killing)
            .await
            .unwrap();
        }
        assert_eq!(killed, 1);
        for _ in 0..3 {
            let claimed = other.log().claim(&"run_1".into()).await;
            assert!(matches!(claimed, Err(LogError::Claimed(_))), "{claimed:?}");
        }
        append(&mut writer, Warning::new("x").into()).await.unwrap();
    }
    drop(killing);
    holder.close().await;
    other.close().await;
}

/// Spec: J2. The clock of the server is set by an hour either way: leases seem to be over, or to last for an hour.
#[tokio::test(flavor = "multi_thread")]
async fn stepped_server_clock_takes_no_run() {
    let server = server!();
    let url = server.database().await;
    let lease = Duration::from_secs(3);
    let options = || Options::new(&url).unwrap().connections(3).lease(lease);
    let holder = Database::connect_with(options()).await.unwrap();
    let other = Database::connect_with(options()).await.unwrap();
    let log: Arc<dyn EventLog> = Arc::new(holder.log());
    let mut writer = begin(&log, "run_1", "s").await;
    let mut sql = connection(&url).await;
    for by in ["-1 hour", "1 hour", "-1 hour"] {
        sqlx::query("UPDATE backstop.processes SET lease_until = lease_until + $1::interval")
            .bind(by)
            .execute(&mut sql)
            .await
            .unwrap();
        let claimed = other.log().claim(&"run_1".into()).await;
        assert!(matches!(claimed, Err(LogError::Claimed(_))), "{by}: {claimed:?}");
        append(&mut writer, Warning::new(by).into()).await.unwrap();
        // It renews within a second.
        until("it may act", async || writer.lease().unwrap().may_start()).await;
    }
    holder.close().await;
    other.close().await;
}

/// Spec: J2. The clock of the server is set back by an hour after a process was stopped.
#[tokio::test(flavor = "multi_thread")]
async fn server_clock_set_back_revives_no_process() {
    let server = server!();
    let url = server.database().await;
    let database = open(&url).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let other = Other::start(&url, Duration::from_secs(1));
    other.says("acts");
    other.signal("STOP");
    let mut sql = connection(&url).await;
    let set_back = "UPDATE backstop.processes SET lease_until = lease_until + interval '1 hour'";
    sqlx::raw_sql(set_back).execute(&mut sql).await.unwrap();
    let mut writer = resume(&log, "run_1").await;
    append(&mut writer, finished()).await.unwrap();
    database.close().await;
}

/// Spec: J2. A claim that another process took is lost at the next renewal, and with it the right to act.
#[tokio::test(flavor = "multi_thread")]
async fn renewal_loses_what_others_claimed() {
    let server = server!();
    let url = server.database().await;
    let options = Options::new(&url).unwrap().connections(3).lease(Duration::from_secs(3));
    let holder = Database::connect_with(options).await.unwrap();
    let log: Arc<dyn EventLog> = Arc::new(holder.log());
    let (lost, kept) = (begin(&log, "run_1", "s-1").await, begin(&log, "run_2", "s-2").await);
    let mut sql = connection(&url).await;
    let taken = "UPDATE backstop.runs SET epoch = epoch + 1, owner = 'other' WHERE run = 'run_1'";
    sqlx::raw_sql(taken).execute(&mut sql).await.unwrap();
    lost.lease().unwrap().wait_for_end().await;
    assert!(!lost.lease().unwrap().may_start());
    until("the other one may act", async || kept.lease().unwrap().may_start()).await;
    drop((lost, kept));
    holder.close().await;
}
