//! `backstop resume`

mod all;

use std::process::ExitCode;

use backstop_event_log::{LogError, RunSummary, open_root};
use backstop_react::{CancellationToken, ReopenRequest, ResumeError, ResumeRequest};
use layer0::id::RunId;
use layer0::stop::Outcome;
use layer0::usage::BudgetIncrease;

use crate::advice::Advice;
use crate::agent_file;
use crate::args::ResumeArgs;
use crate::behaviors::{Behaviors, read_behaviors};
use crate::commands::run::equip_agent;
use crate::conclude::ReportContext;
use crate::current::CurrentFile;
use crate::exit::{self, CliError};
use crate::ids;
use crate::output;
use crate::progress::{self, PrintedResult, Results};
use crate::prompt::user;
use crate::recorded::RecordedAgentFile;
use crate::report;
use crate::signals;
use crate::store::{self, Chosen};

pub(crate) async fn run(args: ResumeArgs) -> Result<ExitCode, CliError> {
    if args.all { resume_all(&args).await } else { resume_one(args, None).await }
}

/// Resumes all interrupted runs, one after the other, as `resume RUN` would. A run that cannot be resumed is reported,
/// and the next one follows. The exit status is the worst one.
async fn resume_all(args: &ResumeArgs) -> Result<ExitCode, CliError> {
    let runs = all::find(&store::choose(&args.store, None)?).await?;
    let stop = signals::interrupt();
    let mut worst = ExitCode::SUCCESS;
    for (done, run) in runs.iter().enumerate() {
        if stop.is_cancelled() {
            output::note(&format!("{} more were not resumed", runs.len() - done));
            return Ok(exit::worse(worst, exit::of_stop()));
        }
        output::note(&format!("resuming {run} ({} of {})", done + 1, runs.len()));
        signals::run_begins();
        let resumed = match resume_one(args.for_run(run), Some(&stop)).await {
            Err(error) if error.is_of_open_run() => {
                output::note(&format!("{run} is running in another process by now"));
                continue;
            }
            resumed => resumed.unwrap_or_else(|error| report::error(&error)),
        };
        worst = exit::worse(worst, resumed);
    }
    Ok(worst)
}

/// Resumes a run until `stop` is cancelled; until a signal by default.
async fn resume_one(
    args: ResumeArgs,
    stop: Option<&CancellationToken>,
) -> Result<ExitCode, CliError> {
    let chosen = store::choose(&args.store, None)?;
    let given = args.run.as_deref().unwrap_or_default();
    let mut run = ids::find_run(&chosen, given).await?;
    let root = find_open_root(&chosen, &run).await?;
    if args.reopen && (root.is_none() || args.input.is_some() || !args.budget.is_empty()) {
        return reopen(args, chosen, run).await;
    }
    if !args.reopen
        && let Some(exit) = over(&chosen, &run, &args).await?
    {
        return Ok(exit);
    }
    if let Some(root) = root {
        output::note(&format!("run {run} was dispatched by {root}: going on with {root}"));
        run = root;
    }
    let (recorded, database) =
        RecordedAgentFile::open(&chosen, &run, args.agent.as_deref(), None).await?;
    let agent = recorded.build(equip_agent(recorded.served_agent(&database).await?, &database))?;
    let behaviors = read_behaviors(&recorded.file, &recorded.path)?;
    let behaviors = Behaviors::serve(behaviors, &database).await?;
    let current = current(&args, &recorded, &run, &chosen);
    let mut request = ResumeRequest::new(run)
        .by(by(args.by))
        .cancelled_by(stop.cloned().unwrap_or_else(signals::interrupt));
    if args.agent.is_some() {
        request = request.allow_other_agent();
    }
    if args.accept_lost_tail {
        request = request.accept_lost_tail();
    }
    if stop.is_some_and(CancellationToken::is_cancelled) {
        // The signal came before this run began and does not cancel it.
        behaviors.end(&[]).await;
        database.close().await;
        return Ok(exit::of_stop());
    }
    let results = if args.json { Results::None } else { Results::Answer };
    let shown = tokio::spawn(progress::show(agent.subscribe(), results));
    let result = agent.resume(request).await;
    drop(agent);
    let answer = shown.await.ok().flatten();
    let advice = Advice::new(&recorded.file, args.agent.as_deref());
    let diverged = matches!(result, Err(ResumeError::Diverged(_)));
    let (database, chosen, json) = (&database, &chosen, args.json);
    let ending = ReportContext { database, chosen, json, advice, behaviors };
    let exit = ending.conclude_resumed(PrintedResult { result, answer }).await;
    match current.filter(|_| diverged) {
        Some(current) => exit.map_err(|error| current.offer(error)),
        None => exit,
    }
}

/// Reopens a run that is over.
async fn reopen(args: ResumeArgs, chosen: Chosen, run: RunId) -> Result<ExitCode, CliError> {
    let (recorded, database) =
        RecordedAgentFile::open(&chosen, &run, args.agent.as_deref(), None).await?;
    let agent = recorded.build(equip_agent(recorded.served_agent(&database).await?, &database))?;
    let behaviors = read_behaviors(&recorded.file, &recorded.path)?;
    let behaviors = Behaviors::serve(behaviors, &database).await?;
    let current = current(&args, &recorded, &run, &chosen);
    let mut request = ReopenRequest::new(run)
        .by(by(args.by))
        .budget(sum(&args.budget))
        .cancelled_by(signals::interrupt());
    if let Some(input) = args.input {
        request = request.message(input);
    }
    if args.agent.is_some() {
        request = request.allow_other_agent();
    }
    if args.accept_lost_tail {
        request = request.accept_lost_tail();
    }
    let results = if args.json { Results::None } else { Results::Answer };
    let shown = tokio::spawn(progress::show(agent.subscribe(), results));
    let result = agent.reopen(request).await;
    drop(agent);
    let answer = shown.await.ok().flatten();
    let advice = Advice::new(&recorded.file, args.agent.as_deref());
    let diverged = matches!(result, Err(ResumeError::Diverged(_)));
    let (database, chosen, json) = (&database, &chosen, args.json);
    let ending = ReportContext { database, chosen, json, advice, behaviors };
    let exit = ending.conclude_resumed(PrintedResult { result, answer }).await;
    match current.filter(|_| diverged) {
        Some(current) => exit.map_err(|error| current.offer(error)),
        None => exit,
    }
}

/// Finds the current agent file of a run that continues as recorded, and prints a note if it changed.
fn current(
    args: &ResumeArgs,
    recorded: &RecordedAgentFile,
    run: &RunId,
    chosen: &Chosen,
) -> Option<CurrentFile> {
    if args.agent.is_some() {
        return None;
    }
    let current = CurrentFile::find(recorded, run, args.reopen, chosen)?;
    current.note();
    Some(current)
}

fn by(given: Option<String>) -> String {
    given.unwrap_or_else(user)
}

/// Returns the sum of budget increases.
pub(super) fn sum(given: &[BudgetIncrease]) -> BudgetIncrease {
    given.iter().fold(BudgetIncrease::new(), |all, more| all.and(more))
}

/// Returns the open run at the top of a run's callers.
pub(super) async fn find_open_root(
    chosen: &Chosen,
    run: &RunId,
) -> Result<Option<RunId>, CliError> {
    let Some(database) = store::open_read_only(chosen).await? else { return Ok(None) };
    let log = database.log();
    let root = match log.summary(run).await {
        Ok(Some(summary)) => open_root(&*log, &summary).await,
        Ok(None) => Ok(None),
        Err(error) => Err(error),
    };
    database.close().await;
    Ok(root?)
}

/// Reports a run that is over, which needs neither its agent nor a claim.
async fn over(
    chosen: &Chosen,
    run: &RunId,
    args: &ResumeArgs,
) -> Result<Option<ExitCode>, CliError> {
    let json = args.json;
    let missing = || LogError::NotFound(run.clone());
    let database = store::open_read_only(chosen).await?.ok_or_else(missing)?;
    let result = match database.log().summary(run).await {
        Ok(Some(summary)) if summary.is_open() => Ok(None),
        Ok(Some(summary)) => {
            if let Some(path) = &args.agent {
                agent_file::read(path)?;
            }
            output::note(&describe_end(&summary));
            if args.agent.is_some() {
                output::note(
                    "--agent was not used: only `--reopen` goes on with a run that is over",
                );
            }
            if args.accept_lost_tail {
                output::note("--accept-lost-tail was not used: the run is over; add --reopen");
            }
            backstop_react::read_outcome(&*database.log(), run).await
        }
        Ok(None) => Err(missing().into()),
        Err(error) => Err(error.into()),
    };
    match result.transpose() {
        Some(result) => {
            let (database, advice, behaviors) =
                (&database, Advice::default(), Behaviors::default());
            let ending = ReportContext { database, chosen, json, advice, behaviors };
            ending.conclude_resumed(PrintedResult { result, answer: None }).await.map(Some)
        }
        None => {
            database.close().await;
            Ok(None)
        }
    }
}

/// Returns the message that a run was not resumed, because it had ended.
fn describe_end(run: &RunSummary) -> String {
    let how = run.outcome.map_or_else(|| run.state.as_str(), Outcome::as_str);
    let reason = run.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    let at = run.finished_at.map(|at| format!(" at {at}")).unwrap_or_default();
    format!("nothing was done: run {} had ended before, {how}{reason}{at}", run.run)
}
