//! One error type for applications.

mod convert;

use std::borrow::Cow;
use std::fmt;

use backstop_error_store::StoreError;
use backstop_event_log::{InvalidCursor, InvalidStartKey, InvalidStoreUrl, LogError};
#[cfg(feature = "mcp")]
use backstop_mcp::McpError;
#[cfg(feature = "mcp-server")]
use backstop_mcp_server::ServeError;
use backstop_provider::ProviderError;
use backstop_react::{
    AgentError, ApprovalNotFound, DecideError, Divergence, HookError, Misuse, PackError,
    RecordedFailure, RequestError, ResumeError, RunFailure,
};
use backstop_retention::RemoveError;
#[cfg(feature = "postgres")]
use backstop_store_postgres::{OpenError as ConnectError, QueueError};
#[cfg(feature = "sqlite")]
use backstop_store_sqlite::{BackupError, OpenError};
use backstop_tool::RegistrationError as ToolRegistrationError;
use backstop_tool::{Misfit, PatternError, SchemaError, ToolError, ToolNotFound};
use layer0::code;
use layer0::error::{BoxError, EnvError, OperatorError, OrchError, StateError};
use layer0::event::DecodeError;
use layer0::failure::{Chain, Effect, Facts, Failure, Inner};
use layer0::message::ImageError;
use thiserror::Error;

/// Every error of Backstop that an application can get, by category. Each error of the parts converts into it, so that
/// `?` works in `main`.
///
/// It prints its category, and with `{:#}` the whole chain on one line; [`Error::hint`] returns how to fix it. With
/// `{:?}`, as at the end of `main`, it prints chain, code and hint.
#[non_exhaustive]
pub enum Error {
    /// What was configured cannot be used.
    ///
    /// Retry: never. Effect: none.
    Configuration(ConfigurationError),
    /// What was asked for was not carried out.
    ///
    /// Retry: as the error inside says, else never. Effect: as it says, else none.
    Execution(ExecutionError),
    /// A pack cannot be loaded.
    ///
    /// Retry: never. Effect: none.
    Pack(PackError),
    /// A pattern cannot be read.
    ///
    /// Retry: never. Effect: none.
    Pattern(PatternError),
    /// Something cannot be registered, or is not.
    ///
    /// Retry: never. Effect: none.
    Registration(RegistrationError),
    /// A record does not replay.
    ///
    /// Retry: as the error inside says. Effect: as it says.
    Replay(ReplayError),
    /// A store cannot be opened, read or written.
    ///
    /// Retry: as the error inside says, never for an event. Effect: as it says, none for an event.
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

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:#} ({})\n  hint: {}", self.code(), self.hint())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.category().1)
    }
}

/// An invalid configuration.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigurationError {
    /// A value is missing, unknown or out of bounds.
    #[error("invalid configuration")]
    #[non_exhaustive]
    InvalidConfiguration {
        /// The error, with its place.
        source: BoxError,
        /// Advice for people.
        hint: Option<String>,
    },
    /// A text is no cursor.
    #[error("invalid cursor")]
    InvalidCursor(#[source] InvalidCursor),
    /// Bytes are no image.
    #[error("invalid image")]
    InvalidImage(#[source] ImageError),
    /// A start cannot be known by a key.
    #[error("invalid key of a start")]
    InvalidStartKey(#[source] InvalidStartKey),
    /// A store URL is none.
    #[error("invalid store")]
    InvalidStoreUrl(#[source] InvalidStoreUrl),
}

/// A failed operation.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExecutionError {
    /// An agent failed; [`ExecutionError::Run`] says more of a run.
    #[error("agent failed")]
    Agent(#[source] Inner<AgentError>),
    /// No open approval has this id.
    #[error("nothing to decide")]
    ApprovalNotFound(#[source] ApprovalNotFound),
    /// A decision about an approval was not accepted.
    #[error("nothing is decided")]
    Decision(#[source] Inner<DecideError>),
    /// An orchestrator could not dispatch.
    #[error("dispatch failed")]
    Dispatch(#[source] OrchError),
    /// An environment could not be used.
    #[error("environment failed")]
    Environment(#[source] Inner<EnvError>),
    /// A hook failed.
    #[error("hook failed")]
    Hook(#[source] Inner<HookError>),
    /// A value does not fit its schema.
    #[error("invalid value")]
    Misfit(#[source] Misfit),
    /// A machine was fed what does not fit its state.
    #[error("the machine refused an input")]
    Misuse(#[source] Inner<Misuse>),
    /// An MCP server gives no tools.
    #[cfg(feature = "mcp")]
    #[error("no tools of an MCP server")]
    Mcp(#[source] Inner<McpError>),
    /// An operator failed.
    #[error("operator failed")]
    Operator(#[source] Inner<OperatorError>),
    /// A model could not be used.
    #[error("model call failed")]
    Provider(#[source] Inner<ProviderError>),
    /// A run had failed, as its record says.
    #[error("the run had failed")]
    Recorded(#[source] Inner<RecordedFailure>),
    /// A request cannot be run.
    #[error("invalid request")]
    Request(#[source] Inner<RequestError>),
    /// A run failed.
    #[error("agent failed")]
    Run(#[source] Inner<RunFailure>),
    /// Agents cannot be served.
    #[cfg(feature = "mcp-server")]
    #[error("serving failed")]
    Serve(#[source] Inner<ServeError>),
    /// A tool failed.
    #[error("tool failed")]
    Tool(#[source] Inner<ToolError>),
}

/// A registration that failed or is missing.
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
    /// A JSON Schema cannot be used.
    #[error("invalid schema")]
    Schema(#[source] SchemaError),
    /// A tool cannot be added.
    #[error("invalid tool")]
    Tool(#[source] ToolRegistrationError),
    /// No tool has this name.
    #[error("unknown tool")]
    ToolNotFound(#[source] ToolNotFound),
}

/// A record that does not replay.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// What the record says is not what follows from it.
    #[error("replay diverged")]
    ReplayDivergence(#[source] Inner<Divergence>),
    /// A run cannot be gone on with or copied from there.
    #[error("the run cannot be gone on with")]
    Resume(#[source] Inner<ResumeError>),
}

/// A failure of a store.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StorageError {
    /// A copy of the store.
    #[cfg(feature = "sqlite")]
    #[error("no backup was made")]
    Backup(#[source] BackupError),
    /// A PostgreSQL database as a whole.
    #[cfg(feature = "postgres")]
    #[error("database cannot be used")]
    Connect(#[source] Inner<ConnectError>),
    /// An event as it was stored.
    #[error("stored event cannot be read")]
    Event(#[source] DecodeError),
    /// The event log.
    #[error("event log failed")]
    Log(#[source] LogError),
    /// The database as a whole.
    #[cfg(feature = "sqlite")]
    #[error("database cannot be used")]
    Open(#[source] OpenError),
    /// A run was not put into a queue.
    #[cfg(feature = "postgres")]
    #[error("run was not queued")]
    Queue(#[source] Inner<QueueError>),
    /// A run or a session was not taken away.
    #[error("nothing was removed")]
    Remove(#[source] RemoveError),
    /// The state store.
    #[error("state store failed")]
    State(#[source] StateError),
    /// The error or result store.
    #[error("error store failed")]
    Store(#[source] StoreError),
}

impl Error {
    /// Returns a [`RegistrationError::BehaviorNotFound`], for code that looks up behaviours by name.
    pub fn behavior_not_found(name: impl Into<String>) -> Self {
        RegistrationError::BehaviorNotFound { name: name.into() }.into()
    }

    /// Returns the code of the failure.
    #[must_use]
    pub fn code(&self) -> &'static str {
        Failure::code(self)
    }

    /// Returns whether a retry can help.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        Failure::retry(self).is_retryable()
    }

    /// Returns how to fix it.
    #[must_use]
    pub fn hint(&self) -> String {
        let own = match self {
            Self::Configuration(ConfigurationError::InvalidConfiguration { hint, .. }) => {
                hint.clone()
            }
            Self::Configuration(ConfigurationError::InvalidCursor(_)) => {
                Some("use `start`, `now`, or the text of a cursor that a feed gave".to_owned())
            }
            Self::Configuration(ConfigurationError::InvalidStartKey(_)) => {
                Some("give a key of at most 256 bytes, for a task that can be recorded".to_owned())
            }
            Self::Configuration(ConfigurationError::InvalidStoreUrl(_)) => {
                Some("use `sqlite:PATH`, `sqlite::memory:` or `postgres://…`".to_owned())
            }
            Self::Execution(ExecutionError::ApprovalNotFound(_)) => {
                Some("list what is open; an approval is decided once".to_owned())
            }
            Self::Configuration(ConfigurationError::InvalidImage(_)) => {
                Some("give a PNG, JPEG, GIF or WebP file of at most 20 MiB".to_owned())
            }
            Self::Execution(ExecutionError::Request(error)) => Some(error.hint().to_owned()),
            Self::Registration(RegistrationError::Schema(_)) => {
                Some("give a JSON Schema that a validator takes".to_owned())
            }
            Self::Pack(_) => Some("load each pack once, and rename what clashes".to_owned()),
            Self::Pattern(_) => {
                Some("write `kind:operation:pattern`, as in `fs:read:/data/**`".to_owned())
            }
            Self::Registration(RegistrationError::ToolNotFound(missing)) => {
                let nearest = missing.nearest.as_ref();
                let meant = nearest.map(|name| format!("did you mean `{name}`?"));
                Some(meant.unwrap_or_else(|| "add the tool to the agent first".to_owned()))
            }
            Self::Registration(RegistrationError::BehaviorNotFound { .. }) => {
                Some("register the behaviour before it is named".to_owned())
            }
            Self::Registration(RegistrationError::Tool(_)) => {
                Some("give every tool a name of its own and a valid JSON Schema".to_owned())
            }
            Self::Replay(ReplayError::Resume(error)) => error.hint().map(Cow::into_owned),
            Self::Execution(_) | Self::Replay(_) | Self::Storage(_) => None,
        };
        own.unwrap_or_else(|| layer0::failure::hint(self).into_owned())
    }

    /// Returns the inner failure if the category adds nothing of its own.
    fn inner(&self) -> Option<&dyn Failure> {
        match self {
            Self::Execution(error) => error.inner(),
            Self::Replay(error) => Some(error.inner()),
            Self::Storage(error) => error.inner(),
            Self::Configuration(_) | Self::Pack(_) | Self::Pattern(_) | Self::Registration(_) => {
                None
            }
        }
    }
}

impl ReplayError {
    fn inner(&self) -> &dyn Failure {
        match self {
            Self::ReplayDivergence(error) => &**error,
            Self::Resume(error) => &**error,
        }
    }
}

impl StorageError {
    fn inner(&self) -> Option<&dyn Failure> {
        Some(match self {
            #[cfg(feature = "sqlite")]
            Self::Backup(error) => error,
            #[cfg(feature = "postgres")]
            Self::Connect(error) => &**error,
            Self::Event(_) => return None,
            Self::Log(error) => error,
            #[cfg(feature = "sqlite")]
            Self::Open(error) => error,
            #[cfg(feature = "postgres")]
            Self::Queue(error) => &**error,
            Self::Remove(error) => error,
            Self::State(error) => error,
            Self::Store(error) => error,
        })
    }
}

impl ExecutionError {
    fn inner(&self) -> Option<&dyn Failure> {
        Some(match self {
            Self::Agent(error) => &**error,
            Self::ApprovalNotFound(error) => error,
            Self::Decision(error) => &**error,
            Self::Dispatch(error) => error,
            Self::Environment(error) => &**error,
            Self::Hook(error) => &**error,
            #[cfg(feature = "mcp")]
            Self::Mcp(error) => &**error,
            Self::Operator(error) => &**error,
            Self::Provider(error) => &**error,
            Self::Recorded(error) => &**error,
            Self::Request(error) => &**error,
            Self::Run(failure) => &**failure,
            #[cfg(feature = "mcp-server")]
            Self::Serve(error) => &**error,
            Self::Tool(error) => &**error,
            Self::Misfit(_) | Self::Misuse(_) => return None,
        })
    }
}

impl Failure for Error {
    fn facts(&self) -> Facts {
        match self {
            Self::Configuration(_) | Self::Pack(_) | Self::Pattern(_) | Self::Registration(_) => {
                Facts::never(code::INPUT_INVALID, Effect::None)
            }
            Self::Execution(error) => error
                .inner()
                .map_or(Facts::never(code::INPUT_INVALID, Effect::None), Failure::facts),
            Self::Replay(error) => error.inner().facts(),
            Self::Storage(error) => error
                .inner()
                .map_or(Facts::never(code::LOG_UNREADABLE, Effect::None), Failure::facts),
        }
    }

    fn hint(&self) -> Option<Cow<'_, str>> {
        self.inner().and_then(Failure::hint)
    }
}
