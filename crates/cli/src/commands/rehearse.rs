//! `backstop rehearse`

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anstyle::Style;
use backstop_config::{AgentFile, ConfigError, Scenario};
use backstop_rehearse::{Rehearsal, rehearse};
use layer0::failure::Seconds;

use crate::agent_file::{command, is_absent};
use crate::args::RehearseArgs;
use crate::exit::{CliError, FAILED};
use crate::output::style::{BAD, GOOD};
use crate::output::{self, format_count};
use crate::report;

pub(crate) async fn run(args: RehearseArgs) -> Result<ExitCode, CliError> {
    // All files are read before the first scenario runs, so that a mistake in one costs nothing.
    let scenarios = args
        .scenarios
        .iter()
        .map(|path| match Scenario::read(path) {
            Ok(scenario) => Ok((scenario, path)),
            Err(error) => Err(explain_error(error, path)),
        })
        .collect::<Result<Vec<_>, CliError>>()?;
    let (mut passed, mut failed, all) = (0, None, scenarios.len());
    for (scenario, path) in &scenarios {
        let rehearsal = match rehearse(scenario, path).await {
            Ok(rehearsal) => rehearsal,
            // The other scenarios still run.
            Err(error) => {
                failed = Some(report::error(&CliError::from(error).in_file(path)));
                continue;
            }
        };
        passed += usize::from(rehearsal.pass);
        if args.json {
            output::json(&rehearsal)?;
        } else {
            print(&rehearsal)?;
        }
    }
    if !args.json {
        let scenarios = if all == 1 { "scenario passes" } else { "scenarios pass" };
        output::note(&format!("{passed} of {all} {scenarios}"));
    }
    let verdict = if passed == all { ExitCode::SUCCESS } else { ExitCode::from(FAILED) };
    Ok(failed.unwrap_or(verdict))
}

/// Adds a hint to the error of a scenario file that cannot be read.
fn explain_error(error: ConfigError, path: &Path) -> CliError {
    if path.is_dir() {
        let files = path.join("*.toml");
        return error.with_hint(format!("name the files in it: {}", files.display())).into();
    }
    if is_absent(&error) {
        return error.with_hint("name a scenario file that is there").into();
    }
    match AgentFile::read(path) {
        Ok(_) => error.with_hint(format!("it is an agent file: `{}`", command("run", path))).into(),
        Err(_) => error.into(),
    }
}

fn print(rehearsal: &Rehearsal) -> Result<(), CliError> {
    let report = &rehearsal.report;
    let verdict = if rehearsal.pass { "pass" } else { "FAIL" };
    let reason = report.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    let events = u64::try_from(report.events.len()).unwrap_or(u64::MAX);
    let runs = match report.runs.len() {
        0 | 1 => String::new(),
        runs => {
            format!(
                " and {} below it",
                format_count(u64::try_from(runs - 1).unwrap_or(u64::MAX), "run")
            )
        }
    };
    let what = format!(
        "  {}: {}{reason}, {}{runs}, {} on the clock",
        rehearsal.scenario,
        report.outcome.as_str(),
        format_count(events, "event"),
        Seconds(Duration::from_millis(report.elapsed_ms)),
    );
    let style = if rehearsal.pass { GOOD } else { BAD };
    output::pieces(&[(style, verdict), (Style::new(), &what)])?;
    match &rehearsal.diff {
        Some(diff) => diff.lines().try_for_each(|line| output::line(&format!("      {line}"))),
        None => Ok(()),
    }
}
