//! `backstop rehearse`

use std::process::ExitCode;
use std::time::Duration;

use config::Scenario;
use layer0::failure::Seconds;
use rehearse::{Rehearsal, rehearse};

use crate::args::RehearseArgs;
use crate::exit::{CliError, FAILED};
use crate::output;

pub(crate) async fn run(args: RehearseArgs) -> Result<ExitCode, CliError> {
    // All files are read before the first is run, so that a mistake in one costs nothing.
    let scenarios = args
        .scenarios
        .iter()
        .map(|path| Scenario::read(path).map(|scenario| (scenario, path)))
        .collect::<Result<Vec<_>, _>>()?;
    let (mut passed, all) = (0, scenarios.len());
    for (scenario, path) in &scenarios {
        let rehearsal = rehearse(scenario, path).await?;
        passed += usize::from(rehearsal.pass);
        if args.json {
            output::json(&rehearsal)?;
        } else {
            print(&rehearsal)?;
        }
    }
    if !args.json {
        output::note(&format!("{passed} of {all} scenarios pass"));
    }
    Ok(if passed == all { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

fn print(rehearsal: &Rehearsal) -> Result<(), CliError> {
    let report = &rehearsal.report;
    let verdict = if rehearsal.pass { "pass" } else { "FAIL" };
    let reason = report.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    output::line(&format!(
        "{verdict}  {}: {}{reason}, {} events, {} on the clock",
        rehearsal.scenario,
        report.outcome.as_str(),
        report.events.len(),
        Seconds(Duration::from_millis(report.elapsed_ms)),
    ))?;
    match &rehearsal.diff {
        Some(diff) => diff.lines().try_for_each(|line| output::line(&format!("      {line}"))),
        None => Ok(()),
    }
}
