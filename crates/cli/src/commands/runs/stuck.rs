//! Runs that need a look.

use std::process::ExitCode;

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::{RunState, StuckReason, StuckRun, UnattendedRuns, stuck_runs};
use backstop_react::priced;
use layer0::Timestamp;
use serde::Serialize;

use super::line::RunLine;
use super::wanted::Wanted;
use crate::exit::CliError;
use crate::output;
use crate::store::{self, Chosen, Database};

/// Lists the runs that need a look.
pub(super) async fn list(
    chosen: &Chosen,
    wanted: &Wanted,
    json: bool,
) -> Result<ExitCode, CliError> {
    let mut stuck = match store::open_read_only(chosen).await? {
        Some(database) => {
            let stuck = find(&database).await;
            database.close().await;
            stuck?
        }
        None => Vec::new(),
    };
    stuck.retain(|stuck| wanted.filter().matches(&stuck.run));
    stuck.truncate(usize::try_from(wanted.limit()).unwrap_or(usize::MAX));
    if json {
        for StuckRun { run, why, since, .. } in stuck {
            let run = priced(run);
            let state = match why {
                StuckReason::Interrupted => why.as_str(),
                _ => run.state.as_str(),
            };
            output::json(&StuckLine { line: RunLine::new(&run, state), stuck: why, since })?;
        }
    } else if stuck.is_empty() {
        output::note(&format!("no run needs a look in {}", chosen.url));
    } else {
        table(&stuck)?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn find(database: &Database) -> Result<Vec<StuckRun>, CliError> {
    let stranded = database.stranded().await?.into_iter().map(|run| (run.run, run.since)).collect();
    let unattended = UnattendedRuns::new(stranded, database.interrupted_runs().await?);
    Ok(stuck_runs(&*database.log(), &unattended, SystemClock.now()).await?)
}

fn table(stuck: &[StuckRun]) -> Result<(), CliError> {
    let row = |stuck: &StuckRun| {
        let StuckRun { run, why, since, .. } = stuck;
        let (why, since) = (why.as_str().to_owned(), since.to_string());
        vec![run.run.to_string(), why, since, run.session.to_string(), run.agent.to_string()]
    };
    let rows: Vec<Vec<String>> = stuck.iter().map(row).collect();
    output::table(&["RUN", "WHY", "SINCE", "SESSION", "AGENT"], &rows)?;
    output::note("`backstop approvals` lists what they wait for; `backstop resume RUN` goes on");
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
    if stuck.iter().any(|stuck| stuck.why == StuckReason::LostTail) {
        output::note(
            "runs with a lost tail have lost recorded events: find out what they did, then \
             `backstop resume RUN --accept-lost-tail`",
        );
    }
    if stuck.iter().any(has_no_record) {
        output::note(
            "of runs without a session nothing is left: `backstop queue cancel RUN`, and start them anew",
        );
    }
    Ok(())
}

/// Returns whether a run has lost its whole record.
fn has_no_record(stuck: &StuckRun) -> bool {
    stuck.why == StuckReason::LostTail && stuck.run.state == RunState::Unreadable
}

/// A run that needs a look as one line of JSON.
#[derive(Serialize)]
struct StuckLine<'a> {
    #[serde(flatten)]
    line: RunLine<'a>,
    stuck: StuckReason,
    since: Timestamp,
}
