//! `backstop worker`

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::RunState;
use backstop_react::CancellationToken;
use backstop_store_postgres::{Queue, QueueLimit};
use backstop_worker::{RunChange, Worker, WorkerReport};
use serde_json::{Value, json};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use crate::args::WorkerArgs;
use crate::assemble::{self, Servers};
use crate::behaviors::{Behaviors, read_behaviors};
use crate::exit::{CliError, STORAGE};
use crate::output::{self, alert, note};
use crate::store::AnyDatabase;
use crate::{several, signals, store, unworked};

/// Time for which a worker waits for an unreachable server before it releases a run.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time limit for the disconnection from a server, after the tools had their time.
const LEAVING: Duration = Duration::from_secs(5);
/// Delay from the start of a worker until its claims are recorded, then the delay until the lease of a worker that was
/// killed before has ended.
const LOOKS_AFTER: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(18)];

pub(crate) async fn run(args: WorkerArgs) -> Result<ExitCode, CliError> {
    // Installed first: a worker that is asked to stop while it starts has nothing to wait for.
    let stop = signals::interrupt();
    let mut files = several::read(&args.agents)?;
    several::check_names(&files)?;
    let chosen = several::choose(&args.store, &files)?;
    store::check_shared(&chosen)?;
    let table = several::store_table(&files)?;
    // Checked before any run is taken: a missing part would fail every run.
    let mut servers = Vec::new();
    for (path, file) in &mut files {
        assemble::fetch_credentials(file, path).await?;
    }
    assemble::hold_all(&files);
    for (path, file) in &files {
        let connected = Servers::connect(file, path).await?;
        connected.tell_left_out();
        assemble::build(connected.give(assemble::agent(file, path, None)?), path)?;
        servers.push(connected);
    }
    let shared = tokio::select! {
        opened = store::open_shared(&chosen, &table, PATIENCE) => opened?,
        () = overdue(&stop, Duration::ZERO) => return Ok(leave_silent_server()),
    };
    let database = AnyDatabase::Postgres(shared.clone());
    let mut worker = Worker::builder(&shared)
        .concurrency(args.concurrency.into())
        .drain(args.drain())
        .max_park(args.max_park())
        .adopt(args.adopt);
    for (name, limit) in &args.queues {
        let queue = QueueLimit::new(name);
        worker = worker.queue(limit.map_or(queue.clone(), |limit| queue.limit(limit)));
    }
    let mut behaviors = Vec::new();
    for ((path, file), servers) in files.iter().zip(&servers) {
        // There is no terminal here: approvals wait for `backstop approve`.
        let agent = assemble::agent(file, path, Some(&database))?.store(&database);
        worker = worker.operator(assemble::build(servers.give(agent), path)?);
        behaviors.push(Behaviors::serve(read_behaviors(file, path)?, &database).await?);
    }
    let worker = worker.build().map_err(CliError::usage)?;
    let told = tokio::spawn(tell(worker.subscribe(), args.json));
    note("working; SIGTERM or Ctrl-C stops");
    note(&store::connections(shared.most_connections()));
    let looking = tokio::spawn(tell_unworked(shared.queue()));
    let work = async {
        let end = worker.run(stop.clone()).await;
        looking.abort();
        drop(worker);
        let _ = told.await;
        for behaviors in behaviors {
            behaviors.end_of_all().await;
        }
        for servers in &servers {
            servers.close().await;
        }
        // The time to drain is for the tools: an unreachable server does not use any.
        tokio::select! {
            () = database.close() => Some(end),
            () = overdue(&stop, Duration::ZERO) => None,
        }
    };
    let end = tokio::select! {
        end = work => end,
        () = overdue(&stop, args.drain()) => None,
    };
    let Some(end) = end else { return Ok(leave_silent_server()) };
    if !end?.at_rest {
        note("tools were still open; their calls count as interrupted");
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints that the server of a stopped worker does not answer; returns the exit code.
fn leave_silent_server() -> ExitCode {
    alert("the database does not answer; its runs go on elsewhere once the lease has ended");
    ExitCode::from(STORAGE)
}

/// Waits until a stopped worker has had the time to drain and to disconnect from its server.
async fn overdue(stop: &CancellationToken, drain: Duration) {
    stop.cancelled().await;
    SystemClock.sleep(drain.saturating_add(LEAVING)).await;
}

/// Prints the runs that no worker works on, once this worker has claimed its runs, and again once the workers that it
/// replaces are known to be dead.
async fn tell_unworked(queue: Queue) {
    let mut told = BTreeSet::new();
    for after in LOOKS_AFTER {
        SystemClock.sleep(after).await;
        // `queue list` shows them too: an unreachable database is no reason to stop.
        for text in unworked::all(&queue).await.unwrap_or_default() {
            if told.insert(text.clone()) {
                note(&text);
            }
        }
    }
}

/// Prints the reports of a worker until it ends.
async fn tell(mut reports: Receiver<WorkerReport>, as_json: bool) {
    loop {
        match reports.recv().await {
            Ok(report) if as_json => {
                // A closed reader is no reason to stop.
                let _ = output::json(&object(&report));
            }
            Ok(WorkerReport::Run(report)) => note(&line_of_run(&report)),
            // Problems of the worker are printed even if quiet.
            Ok(report) => alert(&line(&report)),
            Err(RecvError::Lagged(missed)) => note(&format!("{missed} lines were left out")),
            Err(RecvError::Closed) => return,
        }
    }
}

fn object(report: &WorkerReport) -> Value {
    match report {
        WorkerReport::DatabaseAway { code, message, .. } => {
            json!({"report": "database_away", "code": code, "message": message})
        }
        WorkerReport::DatabaseBack { after, .. } => {
            let after = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
            json!({"report": "database_back", "after_ms": after})
        }
        WorkerReport::LeaseLost => json!({"report": "lease_lost"}),
        WorkerReport::Run(RunChange::Begun { run, agent, goes_on, .. }) => {
            json!({"report": "begun", "run": run, "agent": agent, "goes_on": goes_on})
        }
        WorkerReport::Run(RunChange::Left { run, state, reason, .. }) => {
            json!({"report": "left", "run": run, "state": state, "reason": reason})
        }
        WorkerReport::Run(RunChange::Refused { run, code, message, .. }) => {
            json!({"report": "refused", "run": run, "code": code, "message": message})
        }
        WorkerReport::Run(RunChange::PutOff { run, code, message, .. }) => {
            json!({"report": "put_off", "run": run, "code": code, "message": message})
        }
        other => json!({"report": "other", "text": format!("{other:?}")}),
    }
}

fn line(report: &WorkerReport) -> String {
    match report {
        WorkerReport::DatabaseAway { code, message, .. } => {
            format!("the database is away: {code}: {message}; it is tried again until it is back")
        }
        WorkerReport::DatabaseBack { after, .. } => {
            format!("the database is back after {:.1} s", after.as_secs_f64())
        }
        WorkerReport::LeaseLost => {
            "the lease of this worker has ended: others may go on with its runs".to_owned()
        }
        other => format!("{other:?}"),
    }
}

fn line_of_run(report: &RunChange) -> String {
    match report {
        RunChange::Begun { run, agent, goes_on: false, .. } => format!("{run} begun ({agent})"),
        RunChange::Begun { run, agent, .. } => format!("{run} gone on with ({agent})"),
        RunChange::Left { run, state: RunState::Running, .. } => format!("{run} released"),
        RunChange::Left { run, state, reason, .. } => {
            let reason = reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
            format!("{run} {}{reason}", state.as_str())
        }
        RunChange::Refused { run, code, message, .. } => {
            format!("{run} cannot be started: {code}: {message}")
        }
        RunChange::PutOff { run, code, message, .. } => {
            format!("{run} put off: {code}: {message}")
        }
        other => format!("{other:?}"),
    }
}
