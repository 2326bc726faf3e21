//! `backstop run`

use std::process::ExitCode;

use config::AgentFile;
use event_log::{LogError, read_events};
use layer0::event::{Event, EventKind};
use layer0::failure::{Chain, Seconds};
use react::{AgentBuilder, AgentError, Approval, ResumeError, RunFailure, RunOutcome, RunRequest};
use rehearse::{RunReport, stored_errors};
use store_sqlite::Database;

use crate::args::RunArgs;
use crate::assemble;
use crate::exit::{self, CliError};
use crate::output::{self, counted, note, notes};
use crate::progress;
use crate::prompt::Prompt;
use crate::report;
use crate::signals;
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
    let agent = assemble::build(equipped(agent, &database), &args.agent)?;

    let mut request = RunRequest::new(input).images(images);
    request.session = args.session.map(Into::into);
    request.labels = args.labels.into_iter().collect();
    let request = request.cancelled_by(signals::interrupt());
    let result = progress::show_run(agent.stream(request)).await;
    conclude(&database, &result, args.json, &chosen).await
}

/// Gives an agent its log, its stores, and the person at the terminal.
pub(crate) fn equipped(agent: AgentBuilder, database: &Database) -> AgentBuilder {
    let agent = agent.store(database);
    match Prompt::at_terminal() {
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
    signals::run_is_over();
    let report = match not_started(result) {
        Some(_) => RunReport::new(result, Vec::new(), Vec::new()),
        None => report(database, result).await,
    };
    database.close().await;
    let printed = if json {
        output::json(&report)
    } else if let Some(error) = not_started(result) {
        return Err(CliError::not_started(error));
    } else {
        print(&report, result, chosen)
    };
    let code = match result {
        Err(RunFailure { error: AgentError::NotStarted(error), .. }) => exit::of_log(error),
        Err(RunFailure { error: AgentError::Storage(error), .. }) => exit::of_log(error),
        _ => exit::of(report.outcome),
    };
    match printed {
        // How the run ended says more than that it could not be printed.
        Err(error) if code != ExitCode::SUCCESS => {
            report::error(&error);
            Ok(code)
        }
        printed => printed.map(|()| code),
    }
}

/// Returns why a run did not even begin.
fn not_started(result: &Result<RunOutcome, RunFailure>) -> Option<&LogError> {
    match result {
        Err(RunFailure { error: AgentError::NotStarted(error), .. }) => Some(error),
        _ => None,
    }
}

/// Reports a run; one whose record cannot be read back is reported without it.
async fn report(database: &Database, result: &Result<RunOutcome, RunFailure>) -> RunReport {
    let run = match result {
        Ok(outcome) => &outcome.run_id,
        Err(failure) => &failure.run_id,
    };
    let events = match read_events(&database.log(), run).await {
        Ok((_, events)) => events,
        // A run that was refused, or whose first event could not be written, has no record.
        Err(LogError::NotFound(_)) if result.is_err() => Vec::new(),
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
    // What a failed run had of an answer is none.
    let printed = match result {
        Ok(_) if !report.output.is_empty() => output::foreign(&report.output),
        _ => Ok(()),
    };
    note("");
    if let Err(failure) = result {
        note(&format!("error: {}: {}", failure.code(), Chain(&failure.error)));
        note(&format!("  hint: {}", failure.hint()));
    }
    if let Ok(outcome) = result {
        outcome.approvals.iter().for_each(|approval| waiting(approval, report, chosen));
    }
    let usage = &report.usage;
    let reason = report.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    note(&format!(
        "run {} {}{reason} in {}: {}, {}, {}",
        report.run,
        report.outcome.as_str(),
        // What a copy took over from another run, and waiting for people, is no time of its own.
        Seconds(std::time::Duration::from_millis(usage.wall_ms)),
        counted(usage.model_calls.into(), "model call"),
        counted(usage.tool_calls.into(), "tool call"),
        counted(usage.total_tokens, "token"),
    ));
    let (errors, kept, read) = error_text(&report.events);
    let store = chosen.flag();
    if errors > 0 {
        let stored = counted(errors, "error");
        note(&format!(
            "{stored} stored: {kept} characters of error text kept from the model, {read} read on request"
        ));
    }
    if !chosen.is_kept() || report.events.is_empty() {
        return printed;
    }
    note("look further:");
    note(&format!("  {}", output::command(&format!("trace {}{store}", report.run))));
    if errors > 0 {
        note(&format!(
            "  {}",
            output::command(&format!("errors list --run {}{store}", report.run))
        ));
    }
    printed
}

/// Prints a call that waits, whole, and how to decide about it.
fn waiting(approval: &Approval, report: &RunReport, chosen: &Chosen) {
    let call = output::call(&approval.tool, &approval.arguments, output::width_of_notes());
    notes(&format!("waiting for approval: {} {call}", approval.id));
    if chosen.is_kept() {
        let store = chosen.flag();
        let decide = format!("approve {} --by NAME{store}", approval.id);
        note(&format!("  {}   (or deny, with --reason TEXT)", output::command(&decide)));
        note(&format!("  {}", output::command(&format!("resume {}{store}", report.run))));
    }
}

/// Returns how many errors were stored, how many characters of them the model was not shown, and how
/// many it asked for.
fn error_text(events: &[Event]) -> (u64, u64, usize) {
    let (mut errors, mut kept, mut read) = (0, 0, 0);
    for event in events {
        match &event.kind {
            EventKind::ErrorStored(stored) => {
                errors += 1;
                kept += stored.chars_kept;
            }
            EventKind::ToolResponded(e) if e.ok && &*e.tool == "get_error_detail" => {
                let page = e.output.value();
                read += page["raw_error"].as_str().map_or(0, |text| text.chars().count());
            }
            _ => {}
        }
    }
    (errors, kept, read)
}
