//! `backstop doctor`

mod endpoints;
mod finding;
mod machine;
mod places;

use std::process::ExitCode;

use anstyle::Style;
use backstop_config::AgentFile;

use self::finding::{Finding, State};
use crate::args::DoctorArgs;
use crate::assemble::folder_of;
use crate::exit::{CliError, FAILED};
use crate::output::style::{BAD, DIM, GOOD};
use crate::output::{self, note};
use crate::store;

pub(crate) async fn run(args: DoctorArgs) -> Result<ExitCode, CliError> {
    let file = match &args.agent {
        Some(path) => match AgentFile::read(path) {
            Ok(file) => Some((file, path.as_path())),
            Err(error) => {
                let hint = format!("`backstop check {}` finds every mistake", path.display());
                let finding = Finding::mend("agent", error.to_string(), hint);
                return finish(&[finding], args.json);
            }
        },
        None => None,
    };
    let of_file = file
        .as_ref()
        .and_then(|(file, path)| file.store.url.as_deref().map(|url| (url, folder_of(path))));
    let mut findings = Vec::new();
    if let Some((_, path)) = &file {
        findings.push(Finding::ok("agent", format!("{} can be read", path.display())));
    }
    match &file {
        Some((file, path)) => findings.extend(endpoints::of_agent(&file.model, path).await),
        None => findings.push(endpoints::usual_keys()),
    }
    match store::choose(&args.store, of_file) {
        Ok(chosen) => findings.extend(places::look_at(&chosen).await),
        Err(error) => findings.push(Finding::of("store", &error)),
    }
    findings.push(machine::clock());
    finish(&findings, args.json)
}

fn finish(findings: &[Finding], json: bool) -> Result<ExitCode, CliError> {
    for finding in findings {
        if json {
            output::json(finding)?;
            continue;
        }
        let (style, word) = match finding.state {
            State::Mend => (BAD, "mend"),
            State::Ok => (GOOD, "ok  "),
            State::Skipped => (DIM, "-   "),
        };
        let text = format!("  {:<8}  {}", finding.check, finding.message);
        output::pieces(&[(style, word), (Style::new(), &text)])?;
        if let Some(hint) = &finding.hint {
            output::line(&format!("      hint: {hint}"))?;
        }
    }
    let broken = findings.iter().filter(|finding| finding.state == State::Mend).count();
    note(match broken {
        0 => "all is well",
        _ => "what needs mending is marked; run it again afterwards",
    });
    Ok(if broken == 0 { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}
