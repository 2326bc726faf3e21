//! Errors on their way to the terminal.

use std::process::ExitCode;

use clap::Parser;

use crate::args::Args;
use crate::exit::{CliError, USAGE};
use crate::output;

/// Prints an error, with its causes and how to mend it.
pub(crate) fn error(error: &CliError) -> ExitCode {
    output::note(&format!("error: {error}"));
    if let Some(hint) = error.hint() {
        output::note(&format!("  hint: {hint}"));
    }
    error.code()
}

/// Prints what is wrong with a command line, or the help that it asks for.
pub(crate) fn refuse(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        // It repeats what was typed, in lines of its own.
        let typed = std::env::args_os().map(|typed| output::escaped(&typed.to_string_lossy()));
        let escaped = Args::try_parse_from(typed).err();
        output::notes(escaped.as_ref().unwrap_or(error).render().to_string().trim_end());
        return ExitCode::from(USAGE);
    }
    match error.print() {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            self::error(&CliError::internal("writing to standard output", error))
        }
        _ => ExitCode::SUCCESS,
    }
}
