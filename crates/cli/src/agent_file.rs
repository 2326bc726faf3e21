//! Reads of agent files, and their errors.

use std::error::Error;
use std::io;
use std::path::Path;

use backstop_config::{AgentFile, ConfigError, Scenario};

use crate::assemble::{self, AgentFileMistake};
use crate::exit::CliError;
use crate::output;

/// Reads the agent file that the command line names.
pub(crate) fn read(path: &Path) -> Result<AgentFile, CliError> {
    AgentFile::read(path).map_err(|error| explain_error(error, path))
}

/// Returns all mistakes of a file, by line.
pub(crate) fn mistakes(path: &Path) -> Result<Vec<AgentFileMistake>, ConfigError> {
    let checked = AgentFile::check(path)?;
    let mut mistakes: Vec<AgentFileMistake> =
        checked.mistakes.iter().map(AgentFileMistake::from).collect();
    mistakes.extend(assemble::mistakes(&checked, path));
    mistakes.sort_by_key(|mistake| mistake.line);
    Ok(mistakes)
}

/// Adds a hint to the error of an agent file that cannot be read or is invalid.
pub(crate) fn explain_error(error: ConfigError, path: &Path) -> CliError {
    if path.is_dir() {
        return error.with_hint(of_folder(path)).into();
    }
    if Scenario::read(path).is_ok() {
        return error
            .with_hint(format!("it is a scenario: `{}`", command("rehearse", path)))
            .into();
    }
    if !is_absent(&error) {
        return with_others(error.into(), path);
    }
    let typed = path.to_string_lossy();
    match typed.contains(char::is_whitespace) {
        true => CliError::usage(ConfigError::new(path, "there is no such agent file")).with_hint(
            format!(
                "the file comes first, what to ask behind it: `{}`",
                output::command(&format!("run AGENT.toml {}", output::quote_for_shell(&typed)))
            ),
        ),
        false => error
            .with_hint(format!(
                "name an agent file that is there, or have one written: `{}`",
                command("init", path)
            ))
            .into(),
    }
}

/// Adds the line to an error about an agent as a whole, and a hint if there are further mistakes.
pub(crate) fn locate_error(error: CliError, path: &Path) -> CliError {
    if !error.is_of_file(path) {
        return error;
    }
    let Ok(checked) = AgentFile::check(path) else { return error };
    let said = error.to_string();
    let found = assemble::held_mistakes(&checked, path);
    let here = found.iter().find(|mistake| said.ends_with(&mistake.what));
    let error = match here.and_then(|mistake| mistake.line) {
        Some(line) => error.in_line(line),
        None => error,
    };
    with_others(error, path)
}

/// Adds a hint that the file has further mistakes, if it has.
fn with_others(error: CliError, path: &Path) -> CliError {
    let Ok(checked) = AgentFile::check(path) else { return error };
    let count = checked.mistakes.len() + assemble::mistakes(&checked, path).len();
    if count < 2 {
        return error;
    }
    let all = format!("`{}` lists all {count} mistakes", command("check", path));
    let hint = error.hint().map_or_else(|| all.clone(), |hint| format!("{hint}; {all}"));
    error.with_hint(hint)
}

/// Returns the command line of a command for a file.
pub(crate) fn command(name: &str, path: &Path) -> String {
    output::command(&format!("{name} {}", output::quote_for_shell(&path.to_string_lossy())))
}

/// Returns whether the error is that there is no such file.
pub(crate) fn is_absent(error: &ConfigError) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::NotFound)
}

/// Returns a hint for a folder in place of a file.
fn of_folder(path: &Path) -> String {
    let usual = path.join("agent.toml");
    match usual.is_file() {
        true => {
            format!("name the file in it: {}", output::quote_for_shell(&usual.to_string_lossy()))
        }
        false => "name an agent file, such as agent.toml in that folder".to_owned(),
    }
}
