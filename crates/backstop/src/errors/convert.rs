//! Conversions from the errors of the parts into [`Error`], and from it into the errors of the standard library.

use std::io;

use backstop_behaviors::{HostError, InvalidDeliveryId, RedeliverError};
#[cfg(feature = "agent-files")]
use backstop_config::ConfigError;
use backstop_error_store::StoreError;
use backstop_event_log::PatternError as EventPatternError;
use backstop_event_log::{InvalidCursor, InvalidStartKey, InvalidStoreUrl, LogError};
#[cfg(feature = "mcp")]
use backstop_mcp::McpError;
#[cfg(feature = "mcp-server")]
use backstop_mcp_server::ServeError;
use backstop_orchestrator::{Diverged, OperatorNameError, WorkflowRecordError};
use backstop_provider::{ProviderError, UnsupportedSetting};
#[cfg(feature = "http")]
use backstop_provider_http::ProviderConfigError;
use backstop_react::{
    AgentError, ApprovalNotFound, BuildError, DecideError, DefinitionError, Divergence, HookError,
    InvalidLimitScope, LoggedFailure, Misuse, PackError, RequestError, ResumeError, RunFailure,
};
use backstop_retention::RemoveError;
#[cfg(feature = "postgres")]
use backstop_store_postgres::{OpenError as ConnectError, QueueError};
#[cfg(feature = "sqlite")]
use backstop_store_sqlite::{BackupError, OpenError};
use backstop_tool::ToolRegistrationError;
use backstop_tool::{GrantError, SchemaError, SchemaViolation, ToolError, ToolNotFound};
#[cfg(feature = "postgres")]
use backstop_worker::WorkerBuildError;
use layer0::code;
use layer0::error::{BoxError, EnvError, OperatorError, OrchError, StateError};
use layer0::event::DecodeError;
use layer0::message::ImageError;
use layer0::orchestrator::UnknownOperator;
use layer0::state::InvalidScope;
use layer0::time::ParseTimestampError;

use super::{
    ConfigurationError, Error, ExecutionError, InvalidPattern, RegistrationError, ReplayError,
    StorageError,
};

/// Converts the error of a category into an [`Error`].
macro_rules! category {
    ($($error:ident => $category:ident),* $(,)?) => {
        $(
            impl From<$error> for Error {
                fn from(error: $error) -> Self {
                    Self::$category(error)
                }
            }
        )*
    };
}

category! {
    ConfigurationError => Configuration,
    ExecutionError => Execution,
    PackError => Pack,
    InvalidPattern => Pattern,
    RegistrationError => Registration,
    ReplayError => Replay,
    StorageError => Storage,
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
            BuildError::MissingState { .. } => {
                let hint =
                    "an agent has one state: put what its tools take into one type".to_owned();
                ConfigurationError::new(error, Some(hint)).into()
            }
            BuildError::UnknownPrice { .. } => {
                let hint = "give it one with `Upstream::price`, or all models one with \
                            `AgentBuilder::price`; or take the cost out of the budget"
                    .to_owned();
                ConfigurationError::new(error, Some(hint)).into()
            }
            BuildError::Pack(error) => error.into(),
            BuildError::Setting(error) => error.into(),
            BuildError::Tool(error) => error.into(),
            BuildError::ToolNotFound(error) => error.into(),
            part @ (BuildError::DuplicateHook(_)
            | BuildError::HookName(_)
            | BuildError::Panicked(_)
            | BuildError::Schema { .. }) => RegistrationError::Part(part.into()).into(),
            other => ConfigurationError::new(other, None).into(),
        }
    }
}

#[cfg(feature = "agent-files")]
impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Self {
        let hint = error.hint().map(ToOwned::to_owned);
        ConfigurationError::new(error, hint).into()
    }
}

impl From<OperatorNameError> for Error {
    fn from(error: OperatorNameError) -> Self {
        RegistrationError::Operator(error.into()).into()
    }
}

impl From<InvalidScope> for Error {
    fn from(error: InvalidScope) -> Self {
        ConfigurationError::new(error, None).into()
    }
}

impl From<HostError> for Error {
    fn from(error: HostError) -> Self {
        match error {
            HostError::Pack(error) => error.into(),
            error => RegistrationError::Behavior(error.into()).into(),
        }
    }
}

impl From<InvalidDeliveryId> for Error {
    fn from(error: InvalidDeliveryId) -> Self {
        let hint = "take it from `Delivery::id`".to_owned();
        ConfigurationError::new(error, Some(hint)).into()
    }
}

impl From<RedeliverError> for Error {
    fn from(error: RedeliverError) -> Self {
        match error {
            RedeliverError::InvalidId(error) => error.into(),
            RedeliverError::Log(error) => error.into(),
            RedeliverError::UnknownBehavior(name) => Self::behavior_not_found(name),
            error @ RedeliverError::NotFound(_) => {
                StorageError::DeliveryNotFound(error.into()).into()
            }
            error => ExecutionError::Redelivery(error.into()).into(),
        }
    }
}

impl From<EventPatternError> for Error {
    fn from(error: EventPatternError) -> Self {
        InvalidPattern::Events(error.into()).into()
    }
}

impl From<GrantError> for Error {
    fn from(error: GrantError) -> Self {
        InvalidPattern::Grant(error).into()
    }
}

impl From<WorkflowRecordError> for Error {
    fn from(error: WorkflowRecordError) -> Self {
        match error {
            WorkflowRecordError::Diverged(error) => error.into(),
            WorkflowRecordError::Log(error) => error.into(),
            other => OperatorError::from_failure(other).into(),
        }
    }
}

impl From<InvalidLimitScope> for Error {
    fn from(error: InvalidLimitScope) -> Self {
        let hint = "write `agent`, `global`, `label:KEY` or `session`".to_owned();
        ConfigurationError::new(error, Some(hint)).into()
    }
}

impl From<UnsupportedSetting> for Error {
    fn from(error: UnsupportedSetting) -> Self {
        let hint = error.hint().to_owned();
        ConfigurationError::new(error, Some(hint)).into()
    }
}

impl From<DefinitionError> for Error {
    fn from(error: DefinitionError) -> Self {
        let hint = "give the limit a value in its bounds".to_owned();
        ConfigurationError::new(error, Some(hint)).into()
    }
}

#[cfg(feature = "http")]
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
    AgentError => ExecutionError::Agent,
    ApprovalNotFound => ExecutionError::ApprovalNotFound,
    DecodeError => StorageError::Event,
    Diverged => ReplayError::WorkflowDivergence,
    Divergence => ReplayError::ReplayDivergence,
    EnvError => ExecutionError::Environment,
    HookError => ExecutionError::Hook,
    ImageError => ConfigurationError::InvalidImage,
    InvalidCursor => ConfigurationError::InvalidCursor,
    InvalidStartKey => ConfigurationError::InvalidStartKey,
    InvalidStoreUrl => ConfigurationError::InvalidStoreUrl,
    LogError => StorageError::Log,
    SchemaViolation => ExecutionError::Misfit,
    Misuse => ExecutionError::Misuse,
    OperatorError => ExecutionError::Operator,
    OrchError => ExecutionError::Dispatch,
    ProviderError => ExecutionError::Provider,
    LoggedFailure => ExecutionError::Recorded,
    RequestError => ExecutionError::Request,
    RunFailure => ExecutionError::Run,
    SchemaError => RegistrationError::Schema,
    StateError => StorageError::State,
    RemoveError => StorageError::Remove,
    StoreError => StorageError::Store,
    ToolError => ExecutionError::Tool,
    ToolNotFound => RegistrationError::ToolNotFound,
    ToolRegistrationError => RegistrationError::Tool,
    UnknownOperator => RegistrationError::UnknownOperator,
}

#[cfg(feature = "mcp")]
leaf! {
    McpError => ExecutionError::Mcp,
}

#[cfg(feature = "mcp-server")]
leaf! {
    ServeError => ExecutionError::Serve,
}

#[cfg(feature = "sqlite")]
leaf! {
    BackupError => StorageError::Backup,
    OpenError => StorageError::Open,
}

#[cfg(feature = "postgres")]
impl From<QueueError> for Error {
    fn from(error: QueueError) -> Self {
        StorageError::Queue(error.into()).into()
    }
}

#[cfg(feature = "postgres")]
impl From<WorkerBuildError> for Error {
    fn from(error: WorkerBuildError) -> Self {
        match error {
            WorkerBuildError::Operators(error) => error.into(),
            error => ConfigurationError::new(error, None).into(),
        }
    }
}

#[cfg(feature = "postgres")]
impl From<ConnectError> for Error {
    fn from(error: ConnectError) -> Self {
        StorageError::Connect(error.into()).into()
    }
}

impl From<ParseTimestampError> for Error {
    fn from(error: ParseTimestampError) -> Self {
        let hint = "write it as `2026-01-31T12:00:00Z`".to_owned();
        ConfigurationError::new(error, Some(hint)).into()
    }
}

impl From<DecideError> for Error {
    fn from(error: DecideError) -> Self {
        match error {
            DecideError::Log(error) => error.into(),
            DecideError::NotFound(error) => error.into(),
            other => ExecutionError::Decision(other.into()).into(),
        }
    }
}

impl From<Box<RunFailure>> for Error {
    fn from(failure: Box<RunFailure>) -> Self {
        ExecutionError::Run(failure.into()).into()
    }
}

impl From<ResumeError> for Error {
    fn from(error: ResumeError) -> Self {
        match error {
            ResumeError::Diverged(divergence) => ReplayError::ReplayDivergence(divergence).into(),
            ResumeError::Log(error) => error.into(),
            ResumeError::Run(failure) => ExecutionError::Run(failure).into(),
            other => ReplayError::Resume(other.into()).into(),
        }
    }
}

/// The kind keeps the meaning where the standard library has one for it.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(kind(&error), error)
    }
}

fn kind(error: &Error) -> io::ErrorKind {
    use io::ErrorKind::{InvalidData, InvalidInput, NotFound, Other, PermissionDenied};
    match error {
        Error::Execution(ExecutionError::ApprovalNotFound(_))
        | Error::Registration(
            RegistrationError::BehaviorNotFound { .. }
            | RegistrationError::ToolNotFound(_)
            | RegistrationError::UnknownOperator(_),
        )
        | Error::Storage(
            StorageError::DeliveryNotFound(_) | StorageError::Log(LogError::NotFound(_)),
        ) => return NotFound,
        #[cfg(feature = "sqlite")]
        Error::Storage(StorageError::Open(OpenError::Missing(_))) => return NotFound,
        Error::Replay(ReplayError::Resume(error))
            if matches!(**error, ResumeError::NoSuchEvent { .. }) =>
        {
            return NotFound;
        }
        Error::Replay(ReplayError::Resume(error))
            if matches!(**error, ResumeError::NotReopenable { .. }) =>
        {
            return InvalidInput;
        }
        Error::Replay(_) => return InvalidData,
        _ => {}
    }
    match error.code() {
        code::TOOL_NOT_FOUND
        | code::PROVIDER_NOT_FOUND
        | code::ORCH_OPERATOR_NOT_FOUND
        | code::ORCH_WORKFLOW_NOT_FOUND
        | code::APPROVAL_NOT_FOUND
        | code::RUN_NOT_FOUND
        | code::STATE_NOT_FOUND => NotFound,
        code::CONFIG_INVALID
        | code::INPUT_INVALID
        | code::TOOL_INVALID_INPUT
        | code::PROVIDER_INVALID_REQUEST => InvalidInput,
        code::RUN_EXISTS => io::ErrorKind::AlreadyExists,
        code::LOG_TAMPERED | code::LOG_UNREADABLE | code::STATE_SERIALIZATION => InvalidData,
        code::PROVIDER_TIMEOUT | code::TOOL_TIMEOUT | code::HOOK_TIMEOUT => io::ErrorKind::TimedOut,
        code::APPROVAL_NOT_APPROVER | code::PROVIDER_AUTH_FAILED | code::TOOL_PERMISSION_DENIED => {
            PermissionDenied
        }
        code::STORE_FULL => io::ErrorKind::StorageFull,
        _ => Other,
    }
}
