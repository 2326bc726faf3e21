//! `backstop doctor`

mod ahead;
mod endpoints;
mod finding;
mod machine;
mod places;
mod runs;
mod server;
mod walls;

use std::path::Path;
use std::process::ExitCode;

use anstyle::Style;
use backstop_config::{AgentFile, ConfigError};

use self::finding::{Finding, FindingState};
use crate::agent_file;
use crate::args::DoctorArgs;
use crate::assemble::{AgentFileMistake, fetch_credentials, tool_mistakes};
use crate::exit::{CliError, FAILED};
use crate::output::style::{BAD, DIM, GOOD};
use crate::output::{self, note};
use crate::store;

pub(crate) async fn run(args: DoctorArgs) -> Result<ExitCode, CliError> {
    let mut file = match &args.agent {
        Some(path) => match AgentFile::read(path) {
            Ok(file) => Some((file, path.as_path())),
            Err(error) => return finish(&unread(error, path), args.json),
        },
        None => None,
    };
    let fetched = match &mut file {
        Some((file, path)) => fetch_credentials(file, path).await,
        None => Ok(()),
    };
    let of_file =
        file.as_ref().and_then(|(file, path)| file.store.url.as_deref().map(|url| (url, *path)));
    let mut findings = Vec::new();
    if let Some((_, path)) = &file {
        findings.push(Finding::ok("agent", format!("{} can be read", path.display())));
        findings.extend(tools(path));
    }
    let is_fetched = fetched.is_ok();
    findings.extend(fetched.err().map(|error| Finding::from_error("keys", &error)));
    match &file {
        // Some credentials of the requests are missing.
        Some(_) if !is_fetched => {}
        Some((file, path)) => findings.extend(endpoints::of_agent(&file.model, path).await),
        None => findings.push(endpoints::usual_keys()),
    }
    match store::choose(&args.store, of_file) {
        Ok(chosen) => findings.extend(places::look_at(&chosen).await),
        Err(error) => findings.push(Finding::from_error("store", &error)),
    }
    if let Some((file, path)) = file.as_ref().filter(|_| is_fetched) {
        findings.extend(walls::of_servers(file, path).await);
    }
    findings.extend(walls::of_machine());
    findings.push(machine::clock());
    finish(&findings, args.json)
}

/// Returns the mistakes of an unreadable agent file, as `backstop check` lists them.
fn unread(error: ConfigError, path: &Path) -> Vec<Finding> {
    let mistakes = agent_file::mistakes(path).unwrap_or_default();
    if mistakes.is_empty() {
        return vec![Finding::from_error("agent", &agent_file::explain_error(error, path))];
    }
    mistakes.into_iter().map(|mistake| of_mistake("agent", mistake, path)).collect()
}

/// Returns the problems of an agent's tools.
fn tools(path: &Path) -> Vec<Finding> {
    let Ok(checked) = AgentFile::check(path) else { return Vec::new() };
    let found = tool_mistakes(&checked, path).into_iter();
    found.map(|mistake| of_mistake("tools", mistake, path)).collect()
}

fn of_mistake(check: &'static str, mistake: AgentFileMistake, path: &Path) -> Finding {
    let line = mistake.line.map(|line| format!(":{line}")).unwrap_or_default();
    let message = format!("{}{line}: {}", path.display(), mistake.what);
    Finding { check, state: FindingState::Mend, message, hint: mistake.hint }
}

fn finish(findings: &[Finding], json: bool) -> Result<ExitCode, CliError> {
    for finding in findings {
        if json {
            output::json(finding)?;
            continue;
        }
        let (style, word) = match finding.state {
            FindingState::Mend => (BAD, "mend"),
            FindingState::Ok => (GOOD, "ok  "),
            FindingState::Skipped => (DIM, "-   "),
        };
        let text = format!("  {:<8}  {}", finding.check, finding.message);
        output::pieces(&[(style, word), (Style::new(), &text)])?;
        if let Some(hint) = &finding.hint {
            output::line(&format!("      hint: {hint}"))?;
        }
    }
    let broken = findings.iter().filter(|finding| finding.state == FindingState::Mend).count();
    note(match broken {
        0 => "all is well",
        _ => "what needs mending is marked; run it again afterwards",
    });
    Ok(if broken == 0 { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}
