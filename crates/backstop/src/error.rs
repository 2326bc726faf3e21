//! One error for applications that want one.

use std::{fmt, io};

use config::{ConfigError, InvalidStoreUrl};
use error_store::StoreError;
use event_log::LogError;
use layer0::code;
use layer0::error::{BoxError, OrchError};
use layer0::failure::{Chain, Effect, Failure, Retry};
use provider_http::ConfigError as ProviderConfigError;
use react::{ApprovalNotFound, BuildError, DefinitionError, Divergence, PackError, RunFailure};
use store_sqlite::OpenError;
use thiserror::Error;
use tool::{PatternError, RegistrationError as ToolRegistrationError, ToolNotFound};

/// Everything that an application's own use of Backstop can meet, by category. Each error of the
/// parts converts into it, so that `?` does in `main`.
///
/// It prints its category, with `{:#}` the whole chain on one line; [`Error::hint`] says how to fix it.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// What was configured cannot be used.
    Configuration(ConfigurationError),
    /// What was asked for was not carried out.
    Execution(ExecutionError),
    /// A pack cannot be loaded.
    Pack(PackError),
    /// A pattern cannot be read.
    Pattern(PatternError),
    /// Something cannot be registered, or is not.
    Registration(RegistrationError),
    /// A record does not replay.
    Replay(ReplayError),
    /// A store cannot be opened, read or written.
    Storage(StorageError),
}

impl Error {
    fn category(&self) -> (&'static str, &(dyn std::error::Error + 'static)) {
        match self {
            Self::Configuration(error) => ("configuration", error),
            Self::Execution(error) => ("execution", error),
            Self::Pack(error) => ("pack", error),
            Self::Pattern(error) => ("pattern", error),
            Self::Registration(error) => ("registration", error),
            Self::Replay(error) => ("replay", error),
            Self::Storage(error) => ("storage", error),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, inside) = self.category();
        f.write_str(name)?;
        if f.alternate() {
            write!(f, ": {}", Chain(inside))?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.category().1)
    }
}

impl From<ConfigurationError> for Error {
    fn from(error: ConfigurationError) -> Self {
        Self::Configuration(error)
    }
}

impl From<ExecutionError> for Error {
    fn from(error: ExecutionError) -> Self {
        Self::Execution(error)
    }
}

impl From<PackError> for Error {
    fn from(error: PackError) -> Self {
        Self::Pack(error)
    }
}

impl From<PatternError> for Error {
    fn from(error: PatternError) -> Self {
        Self::Pattern(error)
    }
}

impl From<RegistrationError> for Error {
    fn from(error: RegistrationError) -> Self {
        Self::Registration(error)
    }
}

impl From<ReplayError> for Error {
    fn from(error: ReplayError) -> Self {
        Self::Replay(error)
    }
}

impl From<StorageError> for Error {
    fn from(error: StorageError) -> Self {
        Self::Storage(error)
    }
}

/// Says what cannot be used as configured.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigurationError {
    /// A value is missing, unknown or out of bounds.
    #[error("invalid configuration")]
    #[non_exhaustive]
    InvalidConfiguration {
        /// What was wrong, and where.
        source: BoxError,
        /// How to fix it.
        hint: Option<String>,
    },
    /// A store URL is none.
    #[error("invalid store")]
    InvalidStoreUrl(#[source] InvalidStoreUrl),
}

/// Says what was not carried out.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExecutionError {
    /// No open question has this id.
    #[error("nothing to decide")]
    ApprovalNotFound(#[source] ApprovalNotFound),
    /// An orchestrator could not dispatch.
    #[error("dispatch failed")]
    Dispatch(#[source] OrchError),
    /// A run failed.
    #[error("agent failed")]
    Run(#[source] Box<RunFailure>),
}

/// Says what cannot be registered, or is not.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RegistrationError {
    /// No behaviour has this name.
    #[error("no behaviour named `{name}`")]
    #[non_exhaustive]
    BehaviorNotFound {
        /// The name.
        name: String,
    },
    /// A tool cannot be added.
    #[error("invalid tool")]
    Tool(#[source] ToolRegistrationError),
    /// No tool has this name.
    #[error("unknown tool")]
    ToolNotFound(#[source] ToolNotFound),
}

/// Says why a record does not replay.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// What the record says is not what follows from it.
    #[error("replay diverged")]
    ReplayDivergence(#[source] Box<Divergence>),
}

/// Says which store failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StorageError {
    /// The event log.
    #[error("event log failed")]
    Log(#[source] LogError),
    /// The database as a whole.
    #[error("database cannot be used")]
    Open(#[source] OpenError),
    /// The error or result store.
    #[error("error store failed")]
    Store(#[source] StoreError),
}

impl Error {
    /// Makes a [`RegistrationError::BehaviorNotFound`], for code that looks behaviours up by name.
    pub fn behavior_not_found(name: impl Into<String>) -> Self {
        RegistrationError::BehaviorNotFound { name: name.into() }.into()
    }

    /// Returns the code of the failure.
    #[must_use]
    pub fn code(&self) -> &'static str {
        Failure::code(self)
    }

    /// Can trying again help?
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        Failure::retry(self).is_retryable()
    }

    /// Says how to fix it.
    #[must_use]
    pub fn hint(&self) -> String {
        let own = match self {
            Self::Configuration(ConfigurationError::InvalidConfiguration { hint, .. }) => {
                hint.clone()
            }
            Self::Configuration(ConfigurationError::InvalidStoreUrl(_)) => {
                Some("use `sqlite:PATH`, `sqlite::memory:` or `postgres://…`".to_owned())
            }
            Self::Execution(ExecutionError::ApprovalNotFound(_)) => {
                Some("list what is open; a question is decided once".to_owned())
            }
            Self::Pack(_) => Some("load each pack once, and rename what clashes".to_owned()),
            Self::Pattern(_) => {
                Some("write `kind:operation:pattern`, as in `fs:read:/data/**`".to_owned())
            }
            Self::Registration(RegistrationError::ToolNotFound(missing)) => {
                missing.nearest.as_ref().map(|name| format!("did you mean `{name}`?"))
            }
            Self::Registration(RegistrationError::BehaviorNotFound { .. }) => {
                Some("register the behaviour before it is named".to_owned())
            }
            Self::Registration(RegistrationError::Tool(_)) => {
                Some("give every tool a name of its own and a valid JSON Schema".to_owned())
            }
            Self::Execution(_) | Self::Replay(_) | Self::Storage(_) => None,
        };
        own.or_else(|| Some(code::find(self.code())?.advice.to_owned())).unwrap_or_default()
    }

    /// Returns the failure inside, where the category adds nothing of its own.
    fn inner(&self) -> Option<&dyn Failure> {
        Some(match self {
            Self::Execution(ExecutionError::ApprovalNotFound(error)) => error,
            Self::Execution(ExecutionError::Dispatch(error)) => error,
            Self::Execution(ExecutionError::Run(failure)) => &**failure,
            Self::Replay(ReplayError::ReplayDivergence(error)) => &**error,
            Self::Storage(StorageError::Log(error)) => error,
            Self::Storage(StorageError::Open(error)) => error,
            Self::Storage(StorageError::Store(error)) => error,
            Self::Configuration(_) | Self::Pack(_) | Self::Pattern(_) | Self::Registration(_) => {
                return None;
            }
        })
    }
}

impl Failure for Error {
    fn code(&self) -> &'static str {
        self.inner().map_or(code::INPUT_INVALID, Failure::code)
    }

    fn retry(&self) -> Retry {
        self.inner().map_or(Retry::Never, Failure::retry)
    }

    fn effect(&self) -> Effect {
        self.inner().map_or(Effect::None, Failure::effect)
    }
}

impl ConfigurationError {
    fn new(source: impl Into<BoxError>, hint: Option<String>) -> Self {
        Self::InvalidConfiguration { source: source.into(), hint }
    }
}

impl From<BuildError> for Error {
    fn from(error: BuildError) -> Self {
        match error {
            BuildError::Definition(error) => error.into(),
            BuildError::Grant(error) => error.into(),
            BuildError::Pack(error) => error.into(),
            BuildError::Tool(error) => error.into(),
            BuildError::ToolNotFound(error) => error.into(),
            other => ConfigurationError::new(other, None).into(),
        }
    }
}

impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Self {
        let hint = error.hint().map(ToOwned::to_owned);
        ConfigurationError::new(error, hint).into()
    }
}

impl From<DefinitionError> for Error {
    fn from(error: DefinitionError) -> Self {
        let hint = "give the limit a value in its bounds".to_owned();
        ConfigurationError::new(error, Some(hint)).into()
    }
}

impl From<ProviderConfigError> for Error {
    fn from(error: ProviderConfigError) -> Self {
        let hint = error.hint();
        ConfigurationError::new(error, Some(hint)).into()
    }
}

/// Converts an error into a leaf of its category.
macro_rules! leaf {
    ($($error:ty => $category:ident::$leaf:ident),* $(,)?) => {
        $(
            impl From<$error> for Error {
                fn from(error: $error) -> Self {
                    $category::$leaf(error.into()).into()
                }
            }
        )*
    };
}

leaf! {
    ApprovalNotFound => ExecutionError::ApprovalNotFound,
    Divergence => ReplayError::ReplayDivergence,
    InvalidStoreUrl => ConfigurationError::InvalidStoreUrl,
    LogError => StorageError::Log,
    OpenError => StorageError::Open,
    OrchError => ExecutionError::Dispatch,
    RunFailure => ExecutionError::Run,
    StoreError => StorageError::Store,
    ToolNotFound => RegistrationError::ToolNotFound,
    ToolRegistrationError => RegistrationError::Tool,
}

/// Keeps the meaning where the standard library has a word for it.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Execution(ExecutionError::ApprovalNotFound(_))
            | Error::Registration(
                RegistrationError::BehaviorNotFound { .. } | RegistrationError::ToolNotFound(_),
            )
            | Error::Storage(
                StorageError::Log(LogError::NotFound(_))
                | StorageError::Open(OpenError::Missing(_)),
            ) => io::ErrorKind::NotFound,
            Error::Configuration(_)
            | Error::Pack(_)
            | Error::Pattern(_)
            | Error::Registration(_) => io::ErrorKind::InvalidInput,
            Error::Replay(_) => io::ErrorKind::InvalidData,
            Error::Storage(_) if error.code() == code::STORE_FULL => io::ErrorKind::StorageFull,
            Error::Storage(_) if error.code() == code::LOG_TAMPERED => io::ErrorKind::InvalidData,
            Error::Execution(_) | Error::Storage(_) => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}
