//! The categories of [`Error`](super::Error).

use std::borrow::Cow;

use backstop_behaviors::{HostError, RedeliverError};
use backstop_error_store::StoreError;
use backstop_event_log::PatternError as EventPatternError;
use backstop_event_log::{InvalidCursor, InvalidStartKey, InvalidStoreUrl, LogError};
#[cfg(feature = "mcp")]
use backstop_mcp::McpError;
#[cfg(feature = "mcp-server")]
use backstop_mcp_server::ServeError;
use backstop_orchestrator::{Diverged, OperatorNameError};
use backstop_provider::ProviderError;
use backstop_react::{
    AgentError, ApprovalNotFound, BuildError, DecideError, Divergence, HookError, LoggedFailure,
    Misuse, RequestError, ResumeError, RunFailure,
};
use backstop_retention::RemoveError;
#[cfg(feature = "postgres")]
use backstop_store_postgres::{OpenError as ConnectError, QueueError};
#[cfg(feature = "sqlite")]
use backstop_store_sqlite::{BackupError, OpenError};
use backstop_tool::ToolRegistrationError;
use backstop_tool::{GrantError, SchemaError, SchemaViolation, ToolError, ToolNotFound};
use layer0::code;
use layer0::error::{BoxError, EnvError, OperatorError, OrchError, StateError};
use layer0::event::DecodeError;
use layer0::failure::{Effect, Facts, Failure, InnerError};
use layer0::message::ImageError;
use layer0::orchestrator::UnknownOperator;
use thiserror::Error;

/// An invalid configuration.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigurationError {
    /// A value is missing, unknown or out of bounds.
    ///
    /// Retry: never. Effect: none.
    #[error("invalid configuration")]
    #[non_exhaustive]
    InvalidConfiguration {
        /// The error, with its place.
        source: BoxError,
        /// Advice for people.
        hint: Option<String>,
    },
    /// A text is no cursor.
    ///
    /// Retry: never. Effect: none.
    #[error("invalid cursor")]
    InvalidCursor(#[source] InvalidCursor),
    /// Bytes are no image.
    ///
    /// Retry: never. Effect: none.
    #[error("invalid image")]
    InvalidImage(#[source] ImageError),
    /// A start cannot be known by a key.
    ///
    /// Retry: never. Effect: none.
    #[error("invalid key of a start")]
    InvalidStartKey(#[source] InvalidStartKey),
    /// A store URL is none.
    ///
    /// Retry: never. Effect: none.
    #[error("invalid store")]
    InvalidStoreUrl(#[source] InvalidStoreUrl),
}

impl Failure for ConfigurationError {
    fn facts(&self) -> Facts {
        match self {
            Self::InvalidConfiguration { .. } => Facts::never(code::CONFIG_INVALID, Effect::None),
            Self::InvalidCursor(_)
            | Self::InvalidImage(_)
            | Self::InvalidStartKey(_)
            | Self::InvalidStoreUrl(_) => Facts::never(code::INPUT_INVALID, Effect::None),
        }
    }

    fn hint(&self) -> Option<Cow<'_, str>> {
        let hint = match self {
            Self::InvalidConfiguration { hint, .. } => return hint.as_deref().map(Cow::Borrowed),
            Self::InvalidCursor(_) => {
                "use `start`, `now`, or the text of a cursor that a feed gave"
            }
            Self::InvalidImage(_) => "give a PNG, JPEG, GIF or WebP file of at most 20 MiB",
            Self::InvalidStartKey(_) => {
                "give a key of at most 256 bytes, for a task that can be recorded"
            }
            Self::InvalidStoreUrl(_) => "use `sqlite:PATH`, `sqlite::memory:` or `postgres://…`",
        };
        Some(hint.into())
    }
}

/// A failed operation.
///
/// Retry: as the error inside says. Effect: as it says.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExecutionError {
    /// An agent failed. [`ExecutionError::Run`] has more details of a run.
    #[error("agent failed")]
    Agent(#[source] InnerError<AgentError>),
    /// No open approval has this id.
    #[error("nothing to decide")]
    ApprovalNotFound(#[source] ApprovalNotFound),
    /// A decision about an approval was not accepted.
    #[error("nothing is decided")]
    Decision(#[source] InnerError<DecideError>),
    /// An orchestrator could not dispatch.
    #[error("dispatch failed")]
    Dispatch(#[source] OrchError),
    /// An environment could not be used.
    #[error("environment failed")]
    Environment(#[source] InnerError<EnvError>),
    /// A hook failed.
    #[error("hook failed")]
    Hook(#[source] InnerError<HookError>),
    /// A value does not fit its schema.
    #[error("invalid value")]
    Misfit(#[source] SchemaViolation),
    /// A state machine got an input that is invalid in its state.
    #[error("the machine refused an input")]
    Misuse(#[source] InnerError<Misuse>),
    /// An MCP server gives no tools.
    #[cfg(feature = "mcp")]
    #[error("no tools of an MCP server")]
    Mcp(#[source] InnerError<McpError>),
    /// An operator failed.
    #[error("operator failed")]
    Operator(#[source] InnerError<OperatorError>),
    /// A model could not be used.
    #[error("model call failed")]
    Provider(#[source] InnerError<ProviderError>),
    /// The record of a run ends with a failure.
    #[error("the run had failed")]
    Recorded(#[source] InnerError<LoggedFailure>),
    /// An event was not delivered again to a behaviour.
    #[error("nothing was delivered")]
    Redelivery(#[source] InnerError<RedeliverError>),
    /// A request cannot be run.
    #[error("invalid request")]
    Request(#[source] InnerError<RequestError>),
    /// A run failed.
    #[error("agent failed")]
    Run(#[source] InnerError<RunFailure>),
    /// Agents cannot be served.
    #[cfg(feature = "mcp-server")]
    #[error("serving failed")]
    Serve(#[source] InnerError<ServeError>),
    /// A tool failed.
    #[error("tool failed")]
    Tool(#[source] InnerError<ToolError>),
}

impl Failure for ExecutionError {
    fn facts(&self) -> Facts {
        self.inner().facts()
    }

    fn hint(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::ApprovalNotFound(_) => {
                Some("list what is open; an approval is decided once".into())
            }
            _ => self.inner().hint(),
        }
    }
}

/// A pattern that cannot be parsed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum InvalidPattern {
    /// A pattern of event types, such as that of a subscription.
    ///
    /// Retry: never. Effect: none.
    #[error("invalid event pattern")]
    Events(#[source] InnerError<EventPatternError>),
    /// A grant.
    ///
    /// Retry: never. Effect: none.
    #[error("invalid grant")]
    Grant(#[source] GrantError),
}

impl Failure for InvalidPattern {
    fn facts(&self) -> Facts {
        match self {
            Self::Events(_) | Self::Grant(_) => Facts::never(code::INPUT_INVALID, Effect::None),
        }
    }

    fn hint(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Events(error) => Failure::hint(&**error),
            Self::Grant(_) => {
                Some("write `kind:operation:pattern`, as in `fs:read:/data/**`".into())
            }
        }
    }
}

/// A registration that failed or is missing.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RegistrationError {
    /// A behaviour cannot be served under its name.
    ///
    /// Retry: never. Effect: none.
    #[error("the behaviour cannot be registered")]
    Behavior(#[source] InnerError<HostError>),
    /// No behaviour has this name.
    ///
    /// Retry: never. Effect: none.
    #[error("no behaviour named `{name}`")]
    #[non_exhaustive]
    BehaviorNotFound {
        /// The name.
        name: String,
    },
    /// An operator cannot be dispatched by its name.
    ///
    /// Retry: never. Effect: none.
    #[error("the operator cannot be registered")]
    Operator(#[source] InnerError<OperatorNameError>),
    /// A hook, a schema or another part of an agent cannot be used.
    ///
    /// Retry: never. Effect: none.
    #[error("the part cannot be registered")]
    Part(#[source] InnerError<BuildError>),
    /// A JSON Schema cannot be used.
    ///
    /// Retry: never. Effect: none.
    #[error("invalid schema")]
    Schema(#[source] SchemaError),
    /// A tool cannot be added.
    ///
    /// Retry: never. Effect: none.
    #[error("invalid tool")]
    Tool(#[source] ToolRegistrationError),
    /// No tool has this name.
    ///
    /// Retry: never. Effect: none.
    #[error("unknown tool")]
    ToolNotFound(#[source] ToolNotFound),
    /// No operator has this name.
    ///
    /// Retry: never. Effect: none.
    #[error("unknown operator")]
    UnknownOperator(#[source] UnknownOperator),
}

impl Failure for RegistrationError {
    fn facts(&self) -> Facts {
        match self {
            Self::Behavior(_)
            | Self::BehaviorNotFound { .. }
            | Self::Operator(_)
            | Self::Part(_)
            | Self::Schema(_)
            | Self::Tool(_)
            | Self::ToolNotFound(_)
            | Self::UnknownOperator(_) => Facts::never(code::CONFIG_INVALID, Effect::None),
        }
    }

    fn hint(&self) -> Option<Cow<'_, str>> {
        let hint = match self {
            Self::Behavior(_) | Self::Part(_) => {
                "give every part a name of its own and a valid schema"
            }
            Self::BehaviorNotFound { .. } => "register the behaviour before it is named",
            Self::Operator(error) => match &**error {
                OperatorNameError::Unknown { source, .. } => return source.hint(),
                _ => "give every operator a name of its own and valid schemas",
            },
            Self::Schema(_) => "give a JSON Schema that a validator takes",
            Self::Tool(_) => "give every tool a name of its own and a valid JSON Schema",
            Self::ToolNotFound(missing) => match &missing.nearest {
                Some(name) => return Some(format!("did you mean `{name}`?").into()),
                None => "add the tool to the agent first",
            },
            Self::UnknownOperator(error) => return error.hint(),
        };
        Some(hint.into())
    }
}

/// A record that cannot be replayed, resumed or forked.
///
/// Retry: as the error inside says. Effect: as it says.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The replay differs from the record.
    #[error("replay diverged")]
    ReplayDivergence(#[source] InnerError<Divergence>),
    /// A run cannot be resumed, reopened or forked.
    #[error("the run cannot be resumed")]
    Resume(#[source] InnerError<ResumeError>),
    /// A workflow differs from its record.
    #[error("workflow diverged")]
    WorkflowDivergence(#[source] InnerError<Diverged>),
}

impl Failure for ReplayError {
    fn facts(&self) -> Facts {
        self.inner().facts()
    }

    fn hint(&self) -> Option<Cow<'_, str>> {
        self.inner().hint()
    }
}

/// A failure of a store.
///
/// Retry: as the error inside says. Effect: as it says.
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
    Connect(#[source] InnerError<ConnectError>),
    /// No event in the log has the id of this delivery.
    #[error("no such delivery in the event log")]
    DeliveryNotFound(#[source] InnerError<RedeliverError>),
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
    Queue(#[source] InnerError<QueueError>),
    /// A run or a session was not removed.
    #[error("nothing was removed")]
    Remove(#[source] RemoveError),
    /// The state store.
    #[error("state store failed")]
    State(#[source] StateError),
    /// The error or result store.
    #[error("error store failed")]
    Store(#[source] StoreError),
}

impl Failure for StorageError {
    fn facts(&self) -> Facts {
        self.inner().facts()
    }

    fn hint(&self) -> Option<Cow<'_, str>> {
        self.inner().hint()
    }
}

impl ReplayError {
    fn inner(&self) -> &dyn Failure {
        match self {
            Self::ReplayDivergence(error) => &**error,
            Self::Resume(error) => &**error,
            Self::WorkflowDivergence(error) => &**error,
        }
    }
}

impl StorageError {
    fn inner(&self) -> &dyn Failure {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Backup(error) => error,
            #[cfg(feature = "postgres")]
            Self::Connect(error) => &**error,
            Self::DeliveryNotFound(error) => &**error,
            Self::Event(error) => error,
            Self::Log(error) => error,
            #[cfg(feature = "sqlite")]
            Self::Open(error) => error,
            #[cfg(feature = "postgres")]
            Self::Queue(error) => &**error,
            Self::Remove(error) => error,
            Self::State(error) => error,
            Self::Store(error) => error,
        }
    }
}

impl ExecutionError {
    fn inner(&self) -> &dyn Failure {
        match self {
            Self::Agent(error) => &**error,
            Self::ApprovalNotFound(error) => error,
            Self::Decision(error) => &**error,
            Self::Dispatch(error) => error,
            Self::Environment(error) => &**error,
            Self::Hook(error) => &**error,
            #[cfg(feature = "mcp")]
            Self::Mcp(error) => &**error,
            Self::Misfit(error) => error,
            Self::Misuse(error) => &**error,
            Self::Operator(error) => &**error,
            Self::Provider(error) => &**error,
            Self::Recorded(error) => &**error,
            Self::Redelivery(error) => &**error,
            Self::Request(error) => &**error,
            Self::Run(failure) => &**failure,
            #[cfg(feature = "mcp-server")]
            Self::Serve(error) => &**error,
            Self::Tool(error) => &**error,
        }
    }
}
