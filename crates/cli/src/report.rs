//! Errors on their way to the terminal.

use std::error::Error;
use std::process::ExitCode;

use backstop_event_log::one_line;
use backstop_provider::ProviderError;
use backstop_react::RunFailure;
use clap::Parser;
use layer0::failure::sources;

use crate::args::Args;
use crate::exit::{CliError, USAGE};
use crate::output;

/// Prints an error, with its causes and how to mend it; as JSON where that was asked for.
pub(crate) fn error(error: &CliError) -> ExitCode {
    if wants_json() {
        output::alert_json(&error.report());
        return error.code();
    }
    output::alert_of(output::style::BAD, "error: ", &error.to_string());
    if let Some(hint) = error.hint() {
        output::alert(&format!("  hint: {hint}"));
    }
    error.code()
}

/// Says why a run failed, with its causes, as [`causes`] does.
pub(crate) fn failure(failure: &RunFailure) -> String {
    causes(failure.source().unwrap_or(failure))
}

/// Says an error with its causes, on one line. Of what lies below a provider's own words, such as the layers of
/// an HTTP client, only the innermost is said, unless `-v` asks for all.
pub(crate) fn causes(error: &(dyn Error + 'static)) -> String {
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

/// Does the command line ask for JSON? It is looked at as it is, because it may be what is wrong.
pub(crate) fn wants_json() -> bool {
    let mut flags = std::env::args_os().skip(1).take_while(|typed| typed != "--");
    flags.any(|typed| typed == "--json" || typed == "--events")
}

/// Returns what is wrong with a command line as an error: what clap says first, and the rest as a hint.
fn mistyped(text: &str) -> CliError {
    let (message, rest) = text.trim().split_once("\n\n").unwrap_or((text.trim(), ""));
    let message = message.strip_prefix("error: ").unwrap_or(message);
    let error = CliError::usage(one_line(message));
    match rest.trim() {
        "" => error,
        rest => error.with_hint(one_line(rest)),
    }
}

/// Prints what is wrong with a command line, or the help that it asks for.
pub(crate) fn refuse(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        // It repeats what was typed, in lines of its own.
        let typed = std::env::args_os().map(|typed| output::escaped(&typed.to_string_lossy()));
        let escaped = Args::try_parse_from(typed).err();
        let text = escaped.as_ref().unwrap_or(error).render().to_string();
        if wants_json() {
            return self::error(&mistyped(&text));
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
