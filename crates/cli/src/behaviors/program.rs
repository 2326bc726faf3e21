//! The behaviour of a program.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::ExitStatus;

use backstop_builtin_tools::Program;
use backstop_redact::Redactor;
use layer0::code;
use layer0::failure::{Effect, Facts, Failure};
use thiserror::Error;

use super::failure_text::format_end;

/// Exit status of a temporary failure: `EX_TEMPFAIL` of sysexits(3).
const TRY_AGAIN: i32 = 75;

/// A program that gets each delivery as one line of JSON on its standard input.
pub(super) struct CommandAction {
    name: String,
    program: Program,
    redactor: Redactor,
}

/// An error of the delivery to a program.
#[derive(Debug, Error)]
pub(super) enum CommandError {
    /// It ended with another status than 0.
    ///
    /// Retry: never. Effect: unknown.
    #[error("`{program}` ended with {status}{said}")]
    Failed { program: String, status: ExitStatus, said: String },
    /// There is no such program.
    ///
    /// Retry: never. Effect: none.
    #[error("there is no program `{program}`")]
    NotFound { program: String },
    /// It could not be started or waited for.
    ///
    /// Retry: never. Effect: unknown.
    #[error("running `{program}` failed")]
    NotRun { program: String, source: io::Error },
    /// It ended with status 75.
    ///
    /// Retry: with backoff. Effect: unknown.
    #[error("`{program}` asks to be run again later{said}")]
    TryAgain { program: String, said: String },
}

impl Failure for CommandError {
    fn facts(&self) -> Facts {
        match self {
            Self::Failed { .. } | Self::NotRun { .. } => {
                Facts::never(code::BEHAVIOR_FAILED, Effect::Unknown)
            }
            Self::NotFound { .. } => Facts::never(code::BEHAVIOR_FAILED, Effect::None),
            Self::TryAgain { .. } => Facts::backoff(code::BEHAVIOR_FAILED, Effect::Unknown),
        }
    }

    fn hint(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::NotFound { program } => Some(
                format!(
                    "install `{program}`, or correct `command` of its [[behavior]]; its path is below the folder of \
                     the agent file"
                )
                .into(),
            ),
            _ => None,
        }
    }
}

impl CommandAction {
    /// Returns the action of a command, whose first item is the program.
    pub(super) fn new(
        command: &[String],
        folder: &Path,
        variables: BTreeMap<String, String>,
        redactor: Redactor,
    ) -> Self {
        let name = command.first().cloned().unwrap_or_default();
        let arguments = command.iter().skip(1).cloned();
        Self { program: Program::new(&*name, arguments, folder, variables), name, redactor }
    }

    /// Runs the program with a delivery.
    pub(super) async fn tell(&self, json: &str) -> Result<(), CommandError> {
        let program = self.name.clone();
        let ended = match self.program.output(&format!("{json}\n"), &self.redactor).await {
            Ok(ended) => ended,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(CommandError::NotFound { program });
            }
            Err(source) => return Err(CommandError::NotRun { program, source }),
        };
        let (status, said) = (ended.status, format_end(&ended.stderr));
        match status.code() {
            Some(0) => Ok(()),
            Some(TRY_AGAIN) => Err(CommandError::TryAgain { program, said }),
            _ => Err(CommandError::Failed { program, status, said }),
        }
    }
}
