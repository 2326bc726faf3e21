//! Workers that are killed while they share runs.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use backstop::layer0::event::EventKind;
use backstop::layer0::id::RunId;
use backstop::layer0::operator::Task;
use backstop::{Enqueue, PostgresDatabase, read_events};
use backstop_clock::{Clock, SystemClock};
use backstop_event_log::{EventLog, Log, RunFilter, RunState, Runs};
use backstop_testkit::PostgresServer;
use sqlx::{Connection, PgConnection};

/// How many workers share how many runs, and how often one of them is killed.
const WORKERS: usize = 4;
const RUNS: usize = 200;
const KILLS: usize = 60;
const BETWEEN_KILLS: Duration = Duration::from_millis(150);
/// How long the rest may take after the last kill: the lease of a worker unless it is told otherwise, a look at parked
/// runs, and ten seconds. It takes two to four.
const QUIET: Duration = Duration::from_secs(15 + 5 + 10);

struct Workers {
    url: String,
    effects: tempfile::NamedTempFile,
    running: Vec<Child>,
}

impl Workers {
    fn start(url: &str) -> Self {
        let effects = tempfile::NamedTempFile::new().unwrap();
        let mut workers = Self { url: url.to_owned(), effects, running: Vec::new() };
        for _ in 0..WORKERS {
            workers.running.push(workers.another());
        }
        workers
    }

    fn another(&self) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mortal"));
        command.arg(&self.url).arg(self.effects.path()).arg("work");
        command.stdin(Stdio::null()).spawn().unwrap()
    }

    /// Kills a worker, and starts another one.
    fn kill(&mut self, number: usize) {
        let another = self.another();
        let mut killed = std::mem::replace(&mut self.running[number % WORKERS], another);
        killed.kill().unwrap();
        killed.wait().unwrap();
    }

    /// Tells all to end, and waits for that.
    fn stop(&mut self) {
        for worker in &mut self.running {
            let id = worker.id().to_string();
            assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        }
        for worker in self.running.drain(..) {
            let output = worker.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", output.status);
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for worker in &mut self.running {
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}

/// How often each call was executed, by run and call.
fn executed(effects: &Path) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in std::fs::read_to_string(effects).unwrap().lines() {
        *counts.entry(line.to_owned()).or_default() += 1;
    }
    counts
}

/// Holds what a record says of its calls against what was done; returns how many were interrupted.
async fn check(log: &dyn EventLog, run: &RunId, done: &BTreeMap<String, usize>) -> usize {
    let (_, events) = read_events(log, run).await.unwrap();
    let mut interrupted = 0;
    for event in &events {
        let EventKind::ToolResponded(answer) = &event.kind else { continue };
        if &*answer.tool != "settle" {
            continue;
        }
        let times = done.get(&format!("{run} {}", answer.call_id)).copied().unwrap_or(0);
        match answer.error.as_ref().map(|error| error.reason.as_str()) {
            None => assert_eq!(times, 1, "{run} {}", answer.call_id),
            Some("tool.interrupted") => {
                assert!(times <= 1, "{run} {}", answer.call_id);
                interrupted += 1;
            }
            Some(other) => panic!("{run} {}: {other}", answer.call_id),
        }
    }
    interrupted
}

/// Waits until so many workers have begun, the dead ones among them: one that is killed has had runs, however slow the
/// machine is.
async fn all_at_work(looking: &mut PgConnection, workers: usize) {
    let begun = async |looking: &mut PgConnection| -> i64 {
        let count = sqlx::query_scalar("SELECT count(*) FROM backstop.workers");
        count.fetch_one(looking).await.unwrap()
    };
    while begun(looking).await < i64::try_from(workers).unwrap() {
        SystemClock.sleep(Duration::from_millis(20)).await;
    }
}

/// Returns what the queue holds, also of runs that are over, which are not listed: runs and what they came to.
async fn left(looking: &mut PgConnection) -> Vec<(String, Option<String>)> {
    let rows = "SELECT run, state FROM backstop.queue LEFT JOIN backstop.runs USING (run)";
    sqlx::query_as(rows).fetch_all(looking).await.unwrap()
}

/// Spec: J2w. 4 workers share 200 runs, trees of agents and workflows among them, and are killed 60 times.
#[tokio::test(flavor = "multi_thread")]
async fn killed_workers_finish_every_run() {
    let server = tokio::task::spawn_blocking(PostgresServer::shared).await.unwrap();
    let Some(server) = server else { return };
    let url = server.database().await;
    let database = PostgresDatabase::connect(&url).await.unwrap();
    let mut looking = PgConnection::connect(&url).await.unwrap();
    let mut workers = Workers::start(&url);
    let mut runs = Vec::new();
    let mut killed = 0;
    // Runs come in while workers die, so that there are some at every kill.
    for number in 0..RUNS {
        let agent = ["payer", "lead", "payer", "flow"][number % 4];
        let mut request = Enqueue::new(agent, Task::text("go")).key(number.to_string());
        if number % 5 == 0 {
            request = request.session(format!("s-{}", number % 3));
        }
        runs.push(database.queue().enqueue(&request).await.unwrap().run);
        if number * KILLS / RUNS >= killed {
            all_at_work(&mut looking, WORKERS + killed).await;
            SystemClock.sleep(BETWEEN_KILLS).await;
            workers.kill(killed * 7);
            killed += 1;
        }
    }
    assert_eq!(killed, KILLS);
    let last_kill = SystemClock.monotonic();
    let since = || SystemClock.monotonic().saturating_sub(last_kill);
    loop {
        let left = left(&mut looking).await;
        if left.is_empty() {
            break;
        }
        assert!(since() <= QUIET, "{} rows are left: {left:?}", left.len());
        SystemClock.sleep(Duration::from_millis(100)).await;
    }
    let quiet_after = since();
    workers.stop();

    let log = database.log();
    let done = executed(workers.effects.path());
    for run in &runs {
        let summary = log.summary(run).await.unwrap().unwrap();
        assert_eq!(summary.state, RunState::Finished, "{summary:?}");
    }
    let mut interrupted = 0;
    let all = log.runs(RunFilter::new().limit(10_000)).await.unwrap();
    assert!(all.len() > RUNS, "there are runs below others");
    for run in &all {
        interrupted += check(&log, &run.run, &done).await;
    }
    assert!(done.values().all(|times| *times == 1), "{done:?}");
    assert!(database.queue().list_stranded().await.unwrap().is_empty());
    println!(
        "{} runs, {} payments, {interrupted} interrupted, quiet {quiet_after:?} after the last kill",
        all.len(),
        done.len()
    );
}
