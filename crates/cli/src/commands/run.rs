//! `backstop run`

use std::process::ExitCode;

use config::AgentFile;
use event_log::{LogError, read_events};
use indicatif::ProgressBar;
use layer0::event::{Event, EventKind};
use layer0::failure::{Chain, Seconds};
use react::{
    AgentBuilder, AgentError, CancellationToken, ResumeError, RunFailure, RunOutcome, RunRequest,
};
use rehearse::{RunReport, stored_errors};
use store_sqlite::Database;

use crate::args::RunArgs;
use crate::assemble;
use crate::exit::{self, CliError};
use crate::output::{self, note};
use crate::progress;
use crate::prompt::Prompt;
use crate::store::{self, Chosen};

pub(crate) async fn run(args: RunArgs) -> Result<ExitCode, CliError> {
    let file = AgentFile::read(&args.agent)?;
    let input = assemble::input(args.input.as_deref(), &file, &args.agent)?;
    let images = args.images.iter().map(|path| assemble::image(path));
    let images = images.collect::<Result<Vec<_>, _>>()?;
    let folder = assemble::folder_of(&args.agent);
    let chosen = store::choose(&args.store, file.store.url.as_deref().map(|url| (url, folder)))?;
    // Everything is checked before a store is opened, so that a mistake leaves no file.
    let agent = assemble::agent(&file, &args.agent)?;
    assemble::build(agent.clone(), &args.agent)?;
    let database = store::open(&chosen, &file.store).await?;
    let spinner = progress::spinner();
    let agent = equipped(agent, &database, spinner.clone());
    let agent = assemble::build(agent, &args.agent)?;

    let mut request = RunRequest::new(input).images(images);
    request.session = args.session.map(Into::into);
    let request = request.cancelled_by(interrupt());
    let shown = tokio::spawn(progress::show(agent.subscribe(), spinner));
    let result = agent.run(request).await;
    // With the agent gone, the screen has seen all there was.
    drop(agent);
    let _ = shown.await;
    conclude(&database, &result, args.json, &chosen).await
}

/// Gives an agent its log, its stores, and whoever is at the terminal.
pub(crate) fn equipped(
    agent: AgentBuilder,
    database: &Database,
    spinner: Option<ProgressBar>,
) -> AgentBuilder {
    let agent = agent.log(database.log()).error_store(database.errors());
    let agent = agent.result_store(database.results());
    match Prompt::at_terminal(spinner) {
        Some(prompt) => agent.approver(prompt),
        None => agent,
    }
}

/// Reports a run that was gone on with, or why it could not be.
pub(crate) async fn conclude_resumed(
    database: &Database,
    result: Result<RunOutcome, ResumeError>,
    json: bool,
    chosen: &Chosen,
) -> Result<ExitCode, CliError> {
    let result = match result {
        Ok(outcome) => Ok(outcome),
        Err(ResumeError::Run(failure)) => Err(*failure),
        Err(error) => {
            database.close().await;
            return Err(error.into());
        }
    };
    conclude(database, &result, json, chosen).await
}

/// Reports how a run ended or why it waits, and closes the store.
async fn conclude(
    database: &Database,
    result: &Result<RunOutcome, RunFailure>,
    json: bool,
    chosen: &Chosen,
) -> Result<ExitCode, CliError> {
    let report = match not_started(result) {
        Some(_) => RunReport::new(result, Vec::new(), Vec::new()),
        None => report(database, result).await,
    };
    database.close().await;
    if json {
        output::json(&report)?;
    } else if let Some(error) = not_started(result) {
        return Err(CliError::not_started(error));
    } else {
        print(&report, result, chosen)?;
    }
    Ok(match result {
        Err(RunFailure { error: AgentError::NotStarted(error), .. }) => exit::of_log(error),
        Err(RunFailure { error: AgentError::Storage(error), .. }) => exit::of_log(error),
        _ => exit::of(report.outcome),
    })
}

/// Returns why a run did not even begin.
fn not_started(result: &Result<RunOutcome, RunFailure>) -> Option<&LogError> {
    match result {
        Err(RunFailure { error: AgentError::NotStarted(error), .. }) => Some(error),
        _ => None,
    }
}

/// Returns a token that the first Ctrl-C cancels, so that the run ends with a complete record. The
/// second one ends the process at once.
pub(crate) fn interrupt() -> CancellationToken {
    let token = CancellationToken::new();
    let cancelled = token.clone();
    tokio::spawn(async move {
        if asked_to_stop().await {
            note("stopping; press Ctrl-C again to stop at once");
            cancelled.cancel();
        }
        if asked_to_stop().await {
            std::process::exit(i32::from(exit::INTERRUPTED));
        }
    });
    token
}

/// Waits for Ctrl-C, or to be told to terminate.
#[cfg(unix)]
async fn asked_to_stop() -> bool {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        return tokio::signal::ctrl_c().await.is_ok();
    };
    tokio::select! {
        pressed = tokio::signal::ctrl_c() => pressed.is_ok(),
        told = terminate.recv() => told.is_some(),
    }
}

/// Waits for Ctrl-C.
#[cfg(not(unix))]
async fn asked_to_stop() -> bool {
    tokio::signal::ctrl_c().await.is_ok()
}

/// Reports a run; one whose record cannot be read back is reported without it.
async fn report(database: &Database, result: &Result<RunOutcome, RunFailure>) -> RunReport {
    let run = match result {
        Ok(outcome) => &outcome.run_id,
        Err(failure) => &failure.run_id,
    };
    let events = match read_events(&database.log(), run).await {
        Ok((_, events)) => events,
        Err(error) => {
            note(&format!("warning: the run's log cannot be read: {}", Chain(&error)));
            Vec::new()
        }
    };
    let errors = match stored_errors(&database.errors(), &events).await {
        Ok(errors) => errors,
        Err(error) => {
            note(&format!("warning: stored errors cannot be read: {}", Chain(&error)));
            Vec::new()
        }
    };
    RunReport::new(result, events, errors)
}

/// Prints the answer to standard output, and what to know about the run to standard error.
fn print(
    report: &RunReport,
    result: &Result<RunOutcome, RunFailure>,
    chosen: &Chosen,
) -> Result<(), CliError> {
    if !report.output.is_empty() {
        output::foreign(&report.output)?;
    }
    note("");
    if let Err(failure) = result {
        note(&format!("error: {}: {}", failure.code(), Chain(&failure.error)));
        if let Some(entry) = layer0::code::find(failure.code()) {
            note(&format!("  hint: {}", entry.advice));
        }
    }
    if let Ok(outcome) = result {
        for approval in &outcome.approvals {
            note(&format!(
                "waiting for approval: {} {} {}",
                approval.id,
                output::harmless(&approval.tool),
                assemble::brief(&approval.arguments)
            ));
            if chosen.is_kept() {
                let store = chosen.flag();
                let decide = format!("approve {} --by NAME{store}", approval.id);
                note(&format!("  {}   (or deny, with --reason TEXT)", output::command(&decide)));
                note(&format!("  {}", output::command(&format!("resume {}{store}", report.run))));
            }
        }
    }
    let usage = &report.usage;
    let reason = report.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    note(&format!(
        "run {} {}{reason} in {}: {} model calls, {} tool calls, {} tokens",
        report.run,
        report.outcome.as_str(),
        Seconds(std::time::Duration::from_millis(report.elapsed_ms)),
        usage.model_calls,
        usage.tool_calls,
        usage.total_tokens,
    ));
    let (errors, kept, read) = error_text(&report.events);
    let store = chosen.flag();
    if errors > 0 {
        let stored = if errors == 1 { "1 error".to_owned() } else { format!("{errors} errors") };
        note(&format!(
            "{stored} stored: {kept} characters of error text kept from the model, {read} read on request"
        ));
    }
    if !chosen.is_kept() {
        return Ok(());
    }
    note("look further:");
    note(&format!("  {}", output::command(&format!("trace {}{store}", report.run))));
    if errors > 0 {
        note(&format!(
            "  {}",
            output::command(&format!("errors list --run {}{store}", report.run))
        ));
    }
    Ok(())
}

/// Returns how many errors were stored, how many characters of them the model was not shown, and how
/// many it asked for.
fn error_text(events: &[Event]) -> (usize, u64, usize) {
    let (mut errors, mut kept, mut read) = (0, 0, 0);
    for event in events {
        match &event.kind {
            EventKind::ErrorStored(stored) => {
                errors += 1;
                kept += stored.chars_kept;
            }
            EventKind::ToolResponded(e) if e.ok && &*e.tool == "get_error_detail" => {
                read += e.output["raw_error"].as_str().map_or(0, |text| text.chars().count());
            }
            _ => {}
        }
    }
    (errors, kept, read)
}
