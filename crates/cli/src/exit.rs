//! Exit codes, and the errors that lead to them.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use backstop_config::ConfigError;
use backstop_error_store::StoreError;
use backstop_event_log::LogError;
use backstop_react::{DecideError, ResumeError};
use backstop_rehearse::RehearsalError;
use backstop_retention::RemoveError;
use backstop_store_postgres::QueueError;
use backstop_store_sqlite::{OlderSchema, OpenError};
use layer0::code;
use layer0::error::{BoxError, StateError};
use layer0::failure::{Chain, Effect, Facts, Failure, Retry, hint};
use layer0::id::RunId;
use layer0::stop::Outcome;
use serde::Serialize;

/// A run failed.
pub(crate) const FAILED: u8 = 1;
/// Usage or configuration.
pub(crate) const USAGE: u8 = 2;
const STOPPED: u8 = 3;
const WAITING: u8 = 4;
pub(crate) const STORAGE: u8 = 5;
const TAMPERED: u8 = 6;

/// An error that ends the command.
#[derive(Debug)]
pub(crate) struct CliError {
    code: u8,
    facts: Facts,
    source: BoxError,
    hint: Option<String>,
}

/// An error as one object of JSON.
#[derive(Serialize)]
pub(crate) struct ErrorReport<'a> {
    code: &'static str,
    message: String,
    hint: Option<&'a str>,
    retry: &'static str,
    retry_after_ms: Option<u64>,
    effect: &'static str,
    exit: u8,
}

/// Facts of a mistake of the caller.
const MISTAKE: Facts = Facts::never(code::INPUT_INVALID, Effect::None);

impl CliError {
    pub(crate) fn usage(error: impl Into<BoxError>) -> Self {
        Self { code: USAGE, facts: MISTAKE, source: error.into(), hint: None }
    }

    /// Makes the error of a command that the state of the store does not allow.
    pub(crate) fn refused(error: impl Failure + Send + Sync + 'static) -> Self {
        Self { code: USAGE, facts: error.facts(), source: error.into(), hint: None }
    }

    pub(crate) fn storage(error: impl Failure + Send + Sync + 'static) -> Self {
        Self { code: STORAGE, facts: error.facts(), source: error.into(), hint: None }
    }

    pub(crate) fn internal(what: &str, error: impl Into<BoxError>) -> Self {
        let error: BoxError = error.into();
        Self {
            code: FAILED,
            facts: Facts::never(code::INTERNAL, Effect::Unknown),
            source: format!("{what} failed: {}", Chain(&*error)).into(),
            hint: None,
        }
    }

    /// Returns the error for an unknown run on the command line.
    pub(crate) fn no_run(run: RunId) -> Self {
        Self { code: USAGE, facts: MISTAKE, ..LogError::NotFound(run).into() }
    }

    /// Returns the error for a run that did not start.
    pub(crate) fn not_started(error: &LogError) -> Self {
        let hint = hint_for_log(error).map(Cow::into_owned);
        let source = Chain(error).to_string().into();
        Self { code: exit_code_for_log(error), facts: error.facts(), source, hint }
    }

    /// Sets another exit code.
    pub(crate) fn with_code(self, code: u8) -> Self {
        Self { code, ..self }
    }

    /// Returns whether the error is that a run is open in another process.
    pub(crate) fn is_of_open_run(&self) -> bool {
        self.facts.code == code::RUN_OPEN
    }

    /// Returns the exit code of the command.
    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }

    /// Returns the hint, if there is one.
    pub(crate) fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Returns the error as the console's API reports it, with the exit code of the command.
    pub(crate) fn report(&self) -> ErrorReport<'_> {
        let (retry, retry_after_ms) = match self.facts.retry {
            Retry::Never => ("never", None),
            Retry::Backoff => ("backoff", None),
            Retry::After(wait) => ("after", u64::try_from(wait.as_millis()).ok()),
        };
        let effect = match self.facts.effect {
            Effect::None => "none",
            Effect::Unknown => "unknown",
            Effect::Happened => "happened",
        };
        let (code, message, hint) = (self.facts.code, self.to_string(), self.hint());
        ErrorReport { code, message, hint, retry, retry_after_ms, effect, exit: self.code }
    }

    /// Returns whether the error is about this file.
    pub(crate) fn is_of_file(&self, path: &Path) -> bool {
        self.source.downcast_ref::<ConfigError>().is_some_and(|error| error.file() == path)
    }

    /// Adds the line to an error about a file.
    pub(crate) fn in_line(mut self, line: usize) -> Self {
        self.source = match self.source.downcast::<ConfigError>() {
            Ok(error) => error.in_line(line).into(),
            Err(error) => error,
        };
        self
    }

    /// Names the file that the error is about.
    pub(crate) fn in_file(self, path: &Path) -> Self {
        let source = format!("{}: {self}", path.display()).into();
        Self { source, ..self }
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Displays the error with its causes.
impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Chain(&*self.source).fmt(f)
    }
}

/// Returns the exit code of a run with this outcome.
pub(crate) fn from_outcome(outcome: Outcome) -> ExitCode {
    ExitCode::from(match outcome {
        Outcome::Completed => 0,
        Outcome::WaitingApproval => WAITING,
        Outcome::Incomplete | Outcome::BudgetExhausted | Outcome::Cancelled => STOPPED,
        _ => FAILED,
    })
}

/// Returns the exit code after a request to stop.
pub(crate) fn of_stop() -> ExitCode {
    ExitCode::from(STOPPED)
}

/// Exit codes, worst first.
const WORST_FIRST: [u8; 6] = [TAMPERED, STORAGE, USAGE, FAILED, STOPPED, WAITING];

/// Returns the worse one of two exit codes.
pub(crate) fn worse(one: ExitCode, other: ExitCode) -> ExitCode {
    let place = |code| WORST_FIRST.iter().position(|known| ExitCode::from(*known) == code);
    let rank = |code| place(code).unwrap_or(WORST_FIRST.len());
    if rank(other) < rank(one) { other } else { one }
}

/// Returns the exit code of a replay that found a difference.
pub(crate) fn of_divergence() -> ExitCode {
    ExitCode::from(TAMPERED)
}

/// Returns the exit code of a run whose log failed.
pub(crate) fn of_log(error: &LogError) -> ExitCode {
    ExitCode::from(exit_code_for_log(error))
}

const fn exit_code_for_log(error: &LogError) -> u8 {
    match error {
        LogError::Tampered { .. } => TAMPERED,
        LogError::Claimed(_)
        | LogError::Followed { .. }
        | LogError::Forgetting(_)
        | LogError::KeyMissing { .. }
        | LogError::NotErasable { .. }
        | LogError::NotFound(_)
        | LogError::RunExists(_)
        | LogError::SessionBusy { .. } => USAGE,
        _ => STORAGE,
    }
}

const FREE_SPACE: &str = "give the disk of the store more space; to give some back, `backstop errors prune`, `backstop runs prune` and `backstop vacuum` need a little of it";

/// Returns the hint for an error of a log.
fn hint_for_log(error: &LogError) -> Option<Cow<'_, str>> {
    let of_command = match error {
        LogError::Failed(error) if error.is::<OlderSchema>() => Some(
            "`backstop vacuum` brings the store to this version; commands that read leave it as it is",
        ),
        LogError::NotFound(_) => Some("`backstop runs` lists the runs of the store"),
        LogError::Followed { .. } => Some(
            "go on with the last run of the session, or copy this one: `backstop fork RUN --at SEQ --input TEXT`",
        ),
        LogError::Claimed(_) => Some("wait for it, or look on with `backstop trace`"),
        LogError::SessionBusy { .. } => Some(
            "wait for that run, or decide what it waits for (`backstop approvals`) and resume it",
        ),
        LogError::KeyMissing { .. } => Some("give the key in BACKSTOP_LOG_KEY"),
        LogError::Erased { .. } => {
            Some("`backstop trace` and `backstop verify` read what is left of the run")
        }
        LogError::NotErasable { .. } => Some("`backstop trace` numbers the events of a run"),
        LogError::Tampered { .. } => Some("do not trust the run from that event on"),
        LogError::UnreadableRun { .. } => {
            Some("`backstop trace` shows what its events say; what they say counts")
        }
        LogError::Unreadable { .. } => {
            Some("its hash chain holds; a version that knows the event can read it")
        }
        LogError::Full(_) => Some(FREE_SPACE),
        _ => None,
    };
    of_command.map(Cow::Borrowed).or_else(|| error.hint())
}

impl From<ConfigError> for CliError {
    fn from(error: ConfigError) -> Self {
        let hint = error.hint().map(ToOwned::to_owned);
        Self { code: USAGE, facts: MISTAKE, source: error.into(), hint }
    }
}

impl From<backstop_store_postgres::OpenError> for CliError {
    fn from(error: backstop_store_postgres::OpenError) -> Self {
        let is_usage = matches!(error, backstop_store_postgres::OpenError::InvalidUrl(_));
        let hint = Failure::hint(&error).map(Cow::into_owned);
        let error = if is_usage { Self::usage(error) } else { Self::storage(error) };
        match hint {
            Some(hint) => error.with_hint(hint),
            None => error,
        }
    }
}

impl From<OpenError> for CliError {
    fn from(error: OpenError) -> Self {
        let hint = match &error {
            OpenError::Missing(_) => {
                Some("run an agent first, or name another store with --store URL")
            }
            OpenError::SchemaNewer { .. } => Some("use the version that wrote it, or a later one"),
            OpenError::Foreign(_) => Some("name another file with --store sqlite:PATH"),
            OpenError::NetworkFileSystem { .. } => Some(
                "move the file to a local disk; where one machine alone uses it and the file system has \
                 working locks and shared memory, put `?network_fs=1` at the end of the store's URL",
            ),
            OpenError::Full { .. } => Some(FREE_SPACE),
            _ => None,
        };
        let hint = hint.map(Cow::Borrowed).or_else(|| Failure::hint(&error)).map(Cow::into_owned);
        let error = Self::storage(error);
        match hint {
            Some(hint) => error.with_hint(hint),
            None => error,
        }
    }
}

impl From<LogError> for CliError {
    fn from(error: LogError) -> Self {
        let (code, hint) = (exit_code_for_log(&error), hint_for_log(&error).map(Cow::into_owned));
        // A wrong id or name on the command line has the code of all its mistakes.
        let facts = match &error {
            LogError::NotApprover { .. } | LogError::NotFound(_) | LogError::RunForgotten(_) => {
                MISTAKE
            }
            error => error.facts(),
        };
        Self { code, facts, source: error.into(), hint }
    }
}

impl From<QueueError> for CliError {
    fn from(error: QueueError) -> Self {
        match error {
            QueueError::Log(error) => error.into(),
            error => {
                let facts = error.facts();
                Self { code: USAGE, facts, source: error.into(), hint: None }
            }
        }
    }
}

impl From<ResumeError> for CliError {
    fn from(error: ResumeError) -> Self {
        match error {
            ResumeError::Log(error) => error.into(),
            ResumeError::Diverged(_) => Self {
                code: TAMPERED,
                facts: error.facts(),
                source: error.into(),
                hint: Some(
                    "the agent has changed since; name the one it was, or another one with --agent"
                        .to_owned(),
                ),
            },
            // The run does not allow the request of the command line.
            other => {
                let hint = Failure::hint(&other).map(Cow::into_owned);
                Self { code: USAGE, facts: other.facts(), source: other.into(), hint }
            }
        }
    }
}

impl From<DecideError> for CliError {
    fn from(error: DecideError) -> Self {
        match error {
            DecideError::Log(error) => error.into(),
            DecideError::NotFound(error) => Self::usage(error)
                .with_hint("`backstop approvals` lists what is open; an approval is decided once"),
            DecideError::Expired(_) => Self::refused(error)
                .with_hint("the call counts as denied; `backstop resume RUN` goes on without it"),
            DecideError::NotApprover { .. } => {
                Self::usage(error).with_hint("let one of them decide")
            }
            error => {
                let hint = Failure::hint(&error).map(Cow::into_owned);
                Self { hint, ..Self::refused(error) }
            }
        }
    }
}

impl From<StoreError> for CliError {
    fn from(error: StoreError) -> Self {
        let hint = match &error {
            StoreError::Full(_) => Some(FREE_SPACE.to_owned()),
            error => error.hint().map(Cow::into_owned),
        };
        Self { hint, ..Self::storage(error) }
    }
}

/// A refusal is a mistake of the caller; a failure is one of the store.
impl From<StateError> for CliError {
    fn from(error: StateError) -> Self {
        let code = match error {
            StateError::WriteFailed(_) | StateError::Serialization(_) | StateError::Other(_) => {
                STORAGE
            }
            _ => FAILED,
        };
        let hint = Some(hint(&error).into_owned());
        // Scripts search for the code.
        let source = format!("{}: {}", error.code(), Chain(&error)).into();
        Self { code, facts: error.facts(), source, hint }
    }
}

impl From<RemoveError> for CliError {
    fn from(error: RemoveError) -> Self {
        let hint = match &error {
            RemoveError::Store(_) => return Self::storage(error),
            RemoveError::Dispatched { .. } => "delete the run that dispatched it",
            RemoveError::Followed { .. } => {
                "delete from the end of the session, or forget it: `backstop sessions forget`"
            }
            RemoveError::Open(_) => {
                "wait for it, decide what it waits for (`backstop approvals`), or stop it \
                 (`backstop cancel`)"
            }
            _ => "`backstop runs` lists the runs of the store",
        };
        Self::refused(error).with_hint(hint)
    }
}

impl From<RehearsalError> for CliError {
    fn from(error: RehearsalError) -> Self {
        match error {
            RehearsalError::Store(_) => Self {
                code: STORAGE,
                facts: Facts::new(code::STORE_FAILED, Retry::Backoff, Effect::None),
                source: error.into(),
                hint: None,
            },
            _ => Self::usage(error),
        }
    }
}
