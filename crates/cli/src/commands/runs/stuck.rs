//! Stuck runs.

use std::collections::BTreeSet;
use std::process::ExitCode;

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::{
    RunState, StuckReason, StuckRun, UnattendedRuns, read_events, stuck_runs,
};
use backstop_orchestrator::is_workflow;
use backstop_react::add_cost;
use layer0::Timestamp;
use layer0::id::RunId;
use serde::Serialize;

use super::line::RunLine;
use super::wanted::RunConditions;
use crate::args::RunsListArgs;
use crate::exit::CliError;
use crate::output;
use crate::store::{self, AnyDatabase, Chosen};

/// Lists the stuck runs.
pub(super) async fn list(chosen: &Chosen, args: &RunsListArgs) -> Result<ExitCode, CliError> {
    let (mut stuck, workflows) = match store::open_read_only(chosen).await? {
        Some(database) => {
            let found = find(&database).await;
            database.close().await;
            found?
        }
        None => Default::default(),
    };
    let is_interrupted = |stuck: &&StuckRun| stuck.why == StuckReason::Interrupted;
    let interrupted = stuck.iter().filter(is_interrupted).map(|stuck| stuck.run.run.clone());
    let wanted = RunConditions::new(args, interrupted.collect());
    stuck.retain(|stuck| wanted.fits(&stuck.run));
    stuck.truncate(usize::try_from(wanted.limit()).unwrap_or(usize::MAX));
    if args.json {
        for StuckRun { run, why, since, .. } in stuck {
            let run = add_cost(run);
            let state = wanted.state(&run);
            output::json(&StuckLine { line: RunLine::new(&run, state), stuck: why, since })?;
        }
    } else if stuck.is_empty() {
        output::note(&format!("no run needs a look in {}", chosen.describe()));
    } else {
        table(&stuck, &workflows)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the stuck runs, and those of them with a lost tail that are workflows.
async fn find(database: &AnyDatabase) -> Result<(Vec<StuckRun>, BTreeSet<RunId>), CliError> {
    let stranded =
        database.list_stranded().await?.into_iter().map(|run| (run.run, run.since)).collect();
    let unattended = UnattendedRuns::new(stranded, database.interrupted_runs().await?);
    let log = database.log();
    let stuck = stuck_runs(&*log, &unattended, SystemClock.now()).await?;
    let mut workflows = BTreeSet::new();
    for StuckRun { run, .. } in stuck.iter().filter(|stuck| has_lost_tail(stuck)) {
        // An unreadable run is listed too.
        let Ok((_, events)) = read_events(&*log, &run.run).await else { continue };
        if events.first().is_some_and(is_workflow) {
            workflows.insert(run.run.clone());
        }
    }
    Ok((stuck, workflows))
}

fn table(stuck: &[StuckRun], workflows: &BTreeSet<RunId>) -> Result<(), CliError> {
    let row = |stuck: &StuckRun| {
        let StuckRun { run, why, since, .. } = stuck;
        let (why, since) = (why.as_str().to_owned(), since.to_string());
        vec![run.run.to_string(), why, since, run.session.to_string(), run.agent.to_string()]
    };
    let rows: Vec<Vec<String>> = stuck.iter().map(row).collect();
    output::table(&["RUN", "WHY", "SINCE", "SESSION", "AGENT"], &rows)?;
    let has = |reason: StuckReason| stuck.iter().any(|stuck| stuck.why == reason);
    if has(StuckReason::ApprovalExpired) || has(StuckReason::ApprovalWaits) {
        output::note("`backstop approvals` lists what runs wait for");
    }
    if stuck.iter().any(|stuck| stuck.why != StuckReason::CrashLoop) {
        output::note("`backstop resume RUN` goes on");
    }
    if has(StuckReason::CrashLoop) {
        output::note(
            "runs of a crash loop have ended: find out what kills the process, then \
             `backstop resume RUN --reopen`",
        );
    }
    if stuck.iter().any(|stuck| stuck.why == StuckReason::Interrupted) {
        output::note(
            "the processes of interrupted runs died: `backstop resume --all` resumes them",
        );
    }
    if stuck.iter().any(|stuck| stuck.why == StuckReason::Stranded) {
        output::note(
            "stranded runs go on with a worker that has the agent as it was when they began, or with \
             `backstop worker --adopt`",
        );
    }
    if stuck.iter().any(has_lost_tail) {
        output::note(
            "runs with a lost tail have lost recorded events: find out what they did, then \
             `backstop resume RUN --accept-lost-tail`",
        );
    }
    let listed = stuck.iter().map(|stuck| &stuck.run.run);
    let workflows: Vec<&str> =
        listed.filter(|run| workflows.contains(*run)).map(RunId::as_str).collect();
    if !workflows.is_empty() {
        output::note(&format!(
            "the program that has the code of a workflow resumes it, with \
             `LocalOrchestrator::resume_accepting_lost_tail`: {}",
            workflows.join(", ")
        ));
    }
    if stuck.iter().any(has_no_record) {
        output::note(
            "of runs without a session nothing is left: `backstop queue cancel RUN`, and start them anew",
        );
    }
    Ok(())
}

/// Returns whether a run has lost its last events.
fn has_lost_tail(stuck: &StuckRun) -> bool {
    stuck.why == StuckReason::LostTail
}

/// Returns whether a run has lost its whole record.
fn has_no_record(stuck: &StuckRun) -> bool {
    has_lost_tail(stuck) && stuck.run.state == RunState::Unreadable
}

/// A stuck run, for one line of JSON.
#[derive(Serialize)]
struct StuckLine<'a> {
    #[serde(flatten)]
    line: RunLine<'a>,
    stuck: StuckReason,
    since: Timestamp,
}
