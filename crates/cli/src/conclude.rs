//! The report after a run has ended or waits.

use std::process::ExitCode;
use std::time::Duration;

use crate::store::AnyDatabase;
use backstop_clock::{Clock, SystemClock};
use backstop_event_log::{LogError, read_events};
use backstop_react::{AgentError, Approval, ResumeError, RunFailure, RunOutcome};
use backstop_rehearse::{RunReport, session_runs, stored_errors};
use layer0::code;
use layer0::event::{Actor, Event, EventKind};
use layer0::failure::{Chain, Seconds};
use layer0::stop::Outcome;

use crate::advice::Advice;
use crate::behaviors::Behaviors;
use crate::exit::{self, CliError};
use crate::limits::limits;
use crate::output::{self, alert, format_count, note, notes};
use crate::progress::PrintedResult;
use crate::report;
use crate::signals;
use crate::store::Chosen;

/// Data for the report of a run besides its record.
pub(crate) struct ReportContext<'a> {
    pub(crate) database: &'a AnyDatabase,
    pub(crate) chosen: &'a Chosen,
    /// Whether everything is printed as one object.
    pub(crate) json: bool,
    /// Facts about its agent.
    pub(crate) advice: Advice,
    /// Behaviours served during the run.
    pub(crate) behaviors: Behaviors,
}

impl ReportContext<'_> {
    /// Reports a resumed run, or the error that kept it from resuming.
    pub(crate) async fn conclude_resumed(
        self,
        seen: PrintedResult<Result<RunOutcome, ResumeError>>,
    ) -> Result<ExitCode, CliError> {
        let result = match seen.result {
            Ok(outcome) => Ok(outcome),
            Err(ResumeError::Run(failure)) => Err(failure.into_inner()),
            Err(error) => {
                // Nothing was done, so no behaviour has anything to receive.
                self.behaviors.end(&[]).await;
                self.database.close().await;
                return Err(error.into());
            }
        };
        self.conclude(PrintedResult { result, answer: seen.answer }).await
    }

    /// Reports the end of a run or the reason of its wait, and closes the store.
    pub(crate) async fn conclude(
        self,
        seen: PrintedResult<Result<RunOutcome, RunFailure>>,
    ) -> Result<ExitCode, CliError> {
        signals::run_is_over();
        let result = &seen.result;
        let report = match not_started(result) {
            Some(_) => RunReport::new(result, Vec::new(), Vec::new()),
            None => build_report(self.database, result).await,
        };
        let refused = not_started(result).filter(|_| !self.json).map(CliError::not_started);
        let printed = match (self.json, &refused) {
            (true, _) => output::json(&report),
            (false, None) => self.print(&report, &seen),
            (false, Some(_)) => Ok(()),
        };
        // The report comes first: it does not wait for deliveries to behaviours.
        self.behaviors.end(std::slice::from_ref(&report.run)).await;
        self.database.close().await;
        if let Some(error) = refused {
            return Err(error);
        }
        let code = match result {
            Err(RunFailure { error: AgentError::NotStarted(error), .. }) => exit::of_log(error),
            Err(RunFailure { error: AgentError::Storage(error), .. }) => exit::of_log(error),
            _ => exit::from_outcome(report.outcome),
        };
        match printed {
            // The exit code of the run matters more than the failure to print.
            Err(error) if code != ExitCode::SUCCESS => {
                report::error(&error);
                Ok(code)
            }
            printed => printed.map(|()| code),
        }
    }

    /// Prints the answer to standard output, and notes on the run to standard error.
    fn print(
        &self,
        report: &RunReport,
        seen: &PrintedResult<Result<RunOutcome, RunFailure>>,
    ) -> Result<(), CliError> {
        let is_shown = seen.answer.as_deref().map(str::trim_end) == Some(report.output.trim_end());
        // A failed run has no answer, even if a part was recorded.
        let printed = match &seen.result {
            Ok(_) if !report.output.is_empty() && !is_shown => output::foreign(&report.output),
            _ => Ok(()),
        };
        note("");
        if let Err(failure) = &seen.result {
            let what = format!("{}: {}", failure.code(), report::failure(failure));
            output::alert_styled(output::style::BAD, "error: ", &what);
            self.advice.print_failure_hint(failure.code(), &failure.hint());
        }
        if let Ok(outcome) = &seen.result {
            outcome.approvals.iter().for_each(|approval| self.waiting(approval, report));
            if let Some(until) = outcome.parked_until {
                note(&format!("parked until {until}: an endpoint asked to be left alone; then:"));
                let resume = format!("resume {}{}", report.run, self.chosen.flag());
                note(&format!("  {}", output::command(&resume)));
            }
        }
        self.advice.print_missing_grants(&report.events);
        note(&summary(report));
        let (errors, kept, read) = error_text(&report.events);
        if errors > 0 {
            let stored = format_count(errors, "error");
            note(&format!(
                "{stored} stored: {kept} characters of error text kept from the model, {read} read on request"
            ));
        }
        if self.chosen.is_kept() && !report.events.is_empty() {
            self.go_on(report);
        }
        printed
    }

    /// Prints the commands that continue from here.
    fn go_on(&self, report: &RunReport) {
        let store = self.chosen.flag();
        let command =
            |rest: &str| note(&format!("  {}", output::command(&format!("{rest}{store}"))));
        let stopped = !matches!(report.outcome, Outcome::Completed | Outcome::WaitingApproval);
        if stopped && let Some(resume) = continuation(report) {
            note(match is_limited(&report.events) {
                true => "resume this run when the spend limit has room again:",
                false => "go on with this run:",
            });
            command(&resume);
        } else if stopped {
            let agent =
                self.advice.path().map_or("AGENT.toml".into(), |path| path.to_string_lossy());
            note("go on in the same session:");
            let agent = output::quote_for_shell(&agent);
            let session = output::quote_for_shell(report.session.as_str()).into_owned();
            command(&format!("run {agent} --session {session} --input TEXT"));
        }
        note("look further:");
        command(&format!("trace {}", report.run));
        match &report.errors[..] {
            [] => {}
            [.., error] if stopped => command(&format!("errors show {}", error.id())),
            _ => command(&format!("errors list --run {}", report.run)),
        }
    }

    /// Prints a waiting call in full, and the commands that decide about it.
    fn waiting(&self, approval: &Approval, report: &RunReport) {
        let call = output::call(&approval.tool, &approval.arguments, output::width_of_notes());
        notes(&format!("waiting for approval: {} {call}", approval.id));
        if let Some(schema) = &approval.schema {
            let schema = output::call("asks for data:", schema, output::width_of_notes());
            notes(&format!("  {schema}"));
        }
        if let Some(limits) = limits(approval.expires_at, &approval.approvers, SystemClock.now()) {
            note(&format!("  ({limits})"));
        }
        if self.chosen.is_kept() {
            let store = self.chosen.flag();
            let data = if approval.schema.is_some() { " --data JSON" } else { "" };
            let decide = format!("approve {} --by NAME{data}{store}", approval.id);
            note(&format!("  {}   (or deny, with --reason TEXT)", output::command(&decide)));
            note(&format!("  {}", output::command(&format!("resume {}{store}", report.run))));
        }
    }
}

/// Returns the command that continues a failed or stopped run; `None` if its end is final.
fn continuation(report: &RunReport) -> Option<String> {
    let is_end =
        |event: &Event| matches!(event.kind, EventKind::RunFinished(_) | EventKind::RunFailed(_));
    if !report.events.last().is_some_and(is_end) {
        // Its record has no end, because the store failed: the run is open.
        return Some(format!("resume {}", report.run));
    }
    let reason = report.reason.as_ref()?.as_str();
    let more = match reason {
        code::INPUT_INVALID => return None,
        code::BUDGET_MODEL_CALLS => " --budget max_model_calls=+20",
        code::BUDGET_TOOL_CALLS => " --budget max_tool_calls=+50",
        code::BUDGET_INPUT_TOKENS => " --budget max_input_tokens=+100000",
        code::BUDGET_OUTPUT_TOKENS => " --budget max_output_tokens=+20000",
        code::BUDGET_TOTAL_TOKENS => " --budget max_total_tokens=+100000",
        // A larger budget of the run does not raise a shared spend limit.
        code::BUDGET_COST_USD if is_limited(&report.events) => "",
        code::BUDGET_COST_USD => " --budget max_cost_usd=+1",
        code::BUDGET_WALL_TIME => " --budget max_wall_ms=+600000",
        code::BUDGET_EVENTS => " --budget max_events=+1000",
        code::BUDGET_DEPTH => " --budget max_depth=+1",
        reason if reason.starts_with("guard.") => " --input TEXT",
        _ => "",
    };
    Some(format!("resume {} --reopen{more}", report.run))
}

/// Returns whether a spend limit ended the run, instead of its own budget.
fn is_limited(events: &[Event]) -> bool {
    let is_budget = |event: &&Event| matches!(event.kind, EventKind::BudgetExhausted(_));
    events.iter().rfind(is_budget).is_some_and(|event| event.actor == Actor::Runtime)
}

/// Returns the end and usage of a run in one line.
fn summary(report: &RunReport) -> String {
    let usage = &report.usage;
    let reason = report.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    format!(
        "run {} {}{reason} in {}: {}, {}, {}{}",
        report.run,
        report.outcome.as_str(),
        // Excludes waits for people, and the time of the original run in a copy.
        Seconds(Duration::from_millis(usage.wall_ms)),
        format_count(usage.model_calls.into(), "model call"),
        format_count(usage.tool_calls.into(), "tool call"),
        format_count(usage.total_tokens, "token"),
        if usage.estimated { " (estimated)" } else { "" },
    )
}

/// Returns the error that kept a run from starting.
fn not_started(result: &Result<RunOutcome, RunFailure>) -> Option<&LogError> {
    match result {
        Err(RunFailure { error: AgentError::NotStarted(error), .. }) => Some(error),
        _ => None,
    }
}

/// Returns the report of a run; without its record if that cannot be read back.
async fn build_report(
    database: &AnyDatabase,
    result: &Result<RunOutcome, RunFailure>,
) -> RunReport {
    let run = match result {
        Ok(outcome) => &outcome.run_id,
        Err(failure) => &failure.run_id,
    };
    let events = match read_events(&*database.log(), run).await {
        Ok((_, events)) => events,
        // A run that was refused, or whose first event was not written, has no record.
        Err(LogError::NotFound(_)) if result.is_err() => Vec::new(),
        Err(error) => {
            alert(&format!("warning: the run's log cannot be read: {}", Chain(&error)));
            Vec::new()
        }
    };
    let errors = match stored_errors(&*database.errors(), &events).await {
        Ok(errors) => errors,
        Err(error) => {
            alert(&format!("warning: stored errors cannot be read: {}", Chain(&error)));
            Vec::new()
        }
    };
    let mut report = RunReport::new(result, events, errors);
    let dispatched = |event: &Event| matches!(event.kind, EventKind::OperatorDispatched(_));
    if report.events.iter().any(dispatched) {
        match session_runs(&*database.log(), &report).await {
            Ok(runs) => report.runs = runs,
            Err(error) => {
                alert(&format!("warning: the runs below cannot be read: {}", Chain(&error)));
            }
        }
        // Their events remain in the store.
        report.runs.iter_mut().for_each(|run| run.events.clear());
    }
    report
}

/// Returns the number of stored errors, the number of their characters that were not shown to the model, and the number
/// of characters that it read later.
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
