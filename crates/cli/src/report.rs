//! Errors for the terminal.

use std::path::Path;
use std::process::ExitCode;

use backstop_config::Scenario;
use backstop_event_log::one_line;
use backstop_provider::ProviderError;
use backstop_react::RunFailure;
use clap::Parser;
use clap::error::{ContextKind, ContextValue};
use layer0::failure::sources;

use crate::agent_file;
use crate::args::Args;
use crate::exit::{CliError, USAGE};
use crate::output;

/// Prints an error with its causes and hint; as JSON if the command line asks for it.
pub(crate) fn error(error: &CliError) -> ExitCode {
    if wants_json() {
        output::alert_json(&error.report());
        return error.code();
    }
    output::alert_styled(output::style::BAD, "error: ", &error.to_string());
    if let Some(hint) = error.hint() {
        output::alert(&format!("  hint: {hint}"));
    }
    error.code()
}

/// Returns the failure of a run with its causes, as [`causes`] does.
pub(crate) fn failure(failure: &RunFailure) -> String {
    causes(failure.error.as_cause())
}

/// Returns an error with its causes, on one line. Of the causes below a provider's own error, such as the layers of an
/// HTTP client, it contains only the innermost, or all of them with `-v`.
pub(crate) fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut chain: Vec<String> = sources(error).map(ToString::to_string).collect();
    let provider = sources(error).enumerate().filter(|(_, error)| error.is::<ProviderError>());
    if let (Some((place, _)), false) = (provider.last(), output::style::is_verbose()) {
        let innermost = chain.len() - 1;
        if innermost > place {
            chain.drain(place + 1..innermost);
        }
    }
    chain.join(": ")
}

/// Returns whether the command line asks for JSON. Reads the raw arguments, because the error may be that they cannot
/// be parsed.
pub(crate) fn wants_json() -> bool {
    let mut flags = std::env::args_os().skip(1).take_while(|typed| typed != "--");
    flags.any(|typed| typed == "--json" || typed == "--events")
}

/// Returns the error for an invalid command line: clap's first paragraph, with the rest as a hint.
fn to_usage_error(text: &str) -> CliError {
    let (message, rest) = text.trim().split_once("\n\n").unwrap_or((text.trim(), ""));
    let message = message.strip_prefix("error: ").unwrap_or(message);
    let error = CliError::usage(one_line(message));
    match rest.trim() {
        "" => error,
        rest => error.with_hint(one_line(rest)),
    }
}

/// Returns a hint with the command for a file that was typed in place of a command.
fn of_file(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let path = Path::new(typed);
    let is_file = path.extension().is_some_and(|end| end == "toml") || path.is_file();
    let (what, name) = match Scenario::read(path) {
        Ok(_) => ("a scenario", "rehearse"),
        Err(_) => ("an agent file", "run"),
    };
    is_file.then(|| format!("{what} is run with `{}`", agent_file::command(name, path)))
}

/// Prints the error of a command line, or the help that it asks for.
pub(crate) fn refuse(error: clap::Error) -> ExitCode {
    if error.use_stderr() {
        // The message repeats the typed arguments on lines of their own, so these are escaped.
        let typed = std::env::args_os().map(|typed| output::escape_line(&typed.to_string_lossy()));
        let tip = of_file(&error);
        let mut error = Args::try_parse_from(typed).err().unwrap_or(error);
        if let Some(tip) = tip {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
        }
        let text = error.render().to_string();
        if wants_json() {
            return self::error(&to_usage_error(&text));
        }
        output::alerts(text.trim_end());
        return ExitCode::from(USAGE);
    }
    match error.print() {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            self::error(&CliError::internal("writing to standard output", error))
        }
        _ => ExitCode::SUCCESS,
    }
}
