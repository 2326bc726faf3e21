//! `backstop check`

use std::process::ExitCode;

use backstop_config::Scenario;
use serde_json::json;

use crate::agent_file;
use crate::args::CheckArgs;
use crate::assemble::AgentFileMistake;
use crate::exit::{CliError, USAGE};
use crate::output::{self, format_count, note};

pub(crate) fn run(args: &CheckArgs) -> Result<ExitCode, CliError> {
    let mistakes = agent_file::mistakes(&args.file)
        .map_err(|error| agent_file::explain_error(error, &args.file))?;
    let file = args.file.display();
    for AgentFileMistake { line, what, hint } in &mistakes {
        if args.json {
            output::json(
                &json!({ "file": file.to_string(), "line": line, "message": what, "hint": hint }),
            )?;
            continue;
        }
        let line = line.map(|line| format!(":{line}")).unwrap_or_default();
        output::line(&format!("{file}{line}: {what}"))?;
        if let Some(hint) = hint {
            output::line(&format!("  hint: {hint}"))?;
        }
    }
    if mistakes.is_empty() {
        note(&format!("{file}: no mistake"));
        return Ok(ExitCode::SUCCESS);
    }
    let count = u64::try_from(mistakes.len()).unwrap_or(u64::MAX);
    note(&format_count(count, "mistake"));
    if Scenario::read(&args.file).is_ok() {
        note(&format!("it is a scenario: `{}`", agent_file::command("rehearse", &args.file)));
    }
    Ok(ExitCode::from(USAGE))
}
