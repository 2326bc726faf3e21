//! LLM agents whose failures have one place to land.
//!
//! This crate is the facade: it re-exports what applications use and adds no logic. Each part is a crate of its own
//! that can be used alone.
//!
//! ```
//! use backstop::{Agent, ScriptedProvider, ToolError};
//!
//! /// Add two integers.
//! #[backstop::tool(idempotent, timeout = "5s")]
//! async fn add(x: i64, y: i64) -> Result<i64, ToolError> {
//!     x.checked_add(y).ok_or_else(|| ToolError::ExecutionFailed("the sum is too large".into()))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), backstop::Error> {
//! let model = ScriptedProvider::calling("add", serde_json::json!({"x": 40, "y": 2}), "It is 42.");
//! let agent = Agent::builder(model).tool(add).build()?;
//! match agent.run("What is 40 + 2?").await {
//!     Ok(outcome) => println!("{}", outcome.text()),
//!     Err(failure) => eprintln!("{}: {failure:#}", failure.code()),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Further types are in modules: the parts of runs ([`event`], [`id`], [`message`], [`usage`], [`code`], …), and the
//! re-exported crates ([`provider`], [`event_log`], …), so that a provider or a store of your own needs no further
//! dependency.
//!
//! Start at [`Agent::builder`], with `use backstop::prelude::*` if you like; swap [`ScriptedProvider`] for
//! [`Anthropic`], [`Bedrock`], [`Gemini`], [`Ollama`], [`OpenAi`] or [`OpenAiResponses`]; keep a record with
//! [`Database`]; compose agents with [`LocalOrchestrator`], and workflows of them with [`Workflow`].

#![cfg_attr(docsrs, feature(doc_cfg))]

mod errors;
pub mod prelude;

pub use ::layer0;
pub use async_trait::async_trait;
pub use backstop_behaviors as behaviors;
pub use backstop_behaviors::{Behavior, BehaviorContext, BehaviorError, BehaviorHost, Delivery};
pub use backstop_clock as clock;
#[cfg(feature = "agent-files")]
pub use backstop_config as config;
#[cfg(feature = "environment")]
pub use backstop_environment as walls;
#[cfg(feature = "environment")]
pub use backstop_environment::{Helper, Network, Rules, Walls};
pub use backstop_error_store as error_store;
pub use backstop_error_store::{
    ErrorFilter, ErrorRecord, ErrorStore, MemoryErrorStore, MemoryResultStore, ResultFilter,
    ResultStore, StoreError,
};
pub use backstop_event_log as event_log;
pub use backstop_event_log::{
    Cursor, EventFilter, EventLog, Feed, InvalidCursor, InvalidStoreUrl, LogError, MemoryLog,
    RunFilter, RunState, RunSummary, StoreUrl, Trace, follow, read_events,
};
#[cfg(feature = "mcp")]
pub use backstop_mcp as mcp;
#[cfg(feature = "mcp")]
pub use backstop_mcp::{McpClient, McpError, McpServer};
#[cfg(feature = "mcp-server")]
pub use backstop_mcp_server as mcp_server;
pub use backstop_orchestrator as orchestrator;
pub use backstop_orchestrator::{
    LocalOrchestrator, Map, OnFailure, OperatorNameError, Parallel, Restart, Route, Sequence,
    Supervise, Workflow,
};
#[cfg(any(feature = "agent-files", feature = "environment"))]
pub use backstop_process::{Credential, Secret};
pub use backstop_process::{RequestDenied, check_request, deny_real_requests};
pub use backstop_provider as provider;
pub use backstop_provider::{
    ModelRequest, ModelResponse, ModelSettings, Provider, ProviderError, ReasoningEffort,
    RecordedProvider, ScriptedAnswer, ScriptedProvider, ScriptedRequests, ToolChoice,
    UnsupportedSetting, recorded,
};
#[cfg(feature = "anthropic")]
pub use backstop_provider_anthropic as anthropic;
#[cfg(feature = "anthropic")]
pub use backstop_provider_anthropic::Anthropic;
#[cfg(feature = "bedrock")]
pub use backstop_provider_bedrock as bedrock;
#[cfg(feature = "bedrock")]
pub use backstop_provider_bedrock::{AwsCredentials, Bedrock};
#[cfg(feature = "gemini")]
pub use backstop_provider_gemini as gemini;
#[cfg(feature = "gemini")]
pub use backstop_provider_gemini::Gemini;
#[cfg(feature = "http")]
pub use backstop_provider_http as provider_http;
#[cfg(feature = "http")]
pub use backstop_provider_http::{ApiKey, ProviderConfigError, Timeouts};
#[cfg(feature = "ollama")]
pub use backstop_provider_ollama as ollama;
#[cfg(feature = "ollama")]
pub use backstop_provider_ollama::Ollama;
#[cfg(feature = "openai")]
pub use backstop_provider_openai as openai;
#[cfg(feature = "openai")]
pub use backstop_provider_openai::{OpenAi, OpenAiResponses};
pub use backstop_react as react;
#[cfg(feature = "json-schema")]
pub use backstop_react::TypedOutcome;
pub use backstop_react::{
    Agent, AgentBuilder, AgentDefinition, AgentError, AgentTool, Approval, ApprovalDesk,
    ApprovalNotFound, ApprovalRequest, Approver, Budget, BuildError, CancellationToken,
    CopyOutcome, DecideError, Decision, Divergence, ForkRequest, Gate, GateVerdict, History,
    HistoryFault, HookContext, HookError, HookPoint, InvalidLimitScope, KnownPrice, LabelError,
    LimitPeriod, LimitScope, Limits, Live, LivePiece, Memory, MemoryEntry, MemoryQuery, Moment,
    Observer, OperatorTool, Pack, PackError, Price, RecentMemory, RecordedTools, ReopenRequest,
    RequestError, ResumeError, ResumeRequest, RunFailure, RunOutcome, RunRequest, RunStatus,
    RunStream, Settlement, Source, SpendLimit, StateMemory, StreamItem, Subscriber, Upstream,
    cancel, copy_run, decide, known_price, known_prices, prices_date, replay, resolve, said_before,
    said_until, status,
};
pub use backstop_redact as redact;
pub use backstop_redact::{Redactor, SharedSecrets};
pub use backstop_retention::{Forgotten, RemoveError, Removed, StoreRetention};
pub use backstop_retry as retry;
pub use backstop_retry::RetryConfig;
pub use backstop_state::MemoryStateStore;
#[cfg(feature = "postgres")]
pub use backstop_store_postgres as store_postgres;
#[cfg(feature = "postgres")]
pub use backstop_store_postgres::{
    Database as PostgresDatabase, Enqueue, Options as PostgresOptions, Queue, QueueError,
    QueueLimit,
};
#[cfg(feature = "sqlite")]
pub use backstop_store_sqlite as store_sqlite;
#[cfg(feature = "sqlite")]
pub use backstop_store_sqlite::{BackupError, Database, Durability, OpenError};
pub use backstop_tool as tool;
pub use backstop_tool::{
    Arguments, FnTool, GrantError, Grants, JsonText, Probe, State, Tool, ToolContext, ToolError,
    ToolSpec, Toolset,
};
pub use backstop_tool_macros::backstop_tool as tool;
#[cfg(feature = "postgres")]
pub use backstop_worker as worker;
#[cfg(feature = "postgres")]
pub use backstop_worker::Worker;
pub use errors::{
    ConfigurationError, Error, ExecutionError, InvalidPattern, RegistrationError, ReplayError,
    StorageError,
};
pub use layer0::error::{BoxError, EnvError, OperatorError, OrchError, StateError};
pub use layer0::event::{Event, EventKind};
pub use layer0::id::{ApprovalId, CallId, ErrorId, ResultId, RunId, SessionId, WorkflowId};
pub use layer0::message::{Image, ImageError, Message, StopReason, ToolCall, Transcript};
pub use layer0::name::{NameError, SessionNameError};
pub use layer0::orchestrator::UnknownOperator;
pub use layer0::stop::{Outcome, Stop};
pub use layer0::time::{ParseTimestampError, Timestamp};
pub use layer0::tool_spec::ToolFacts;
pub use layer0::usage::{BudgetIncrease, TokenUsage, Usage};
pub use layer0::{
    Code, Effect, Environment, Failure, Operator, Orchestrator, Retry, Scope, StateStore, code,
    environment, error, event, failure, id, message, operator, state, stop, usage,
};
pub use schemars;

/// The README's program, compiled and run.
#[cfg(all(doctest, feature = "full"))]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The guide's programs, compiled and run.
#[cfg(all(doctest, feature = "full"))]
#[doc = include_str!("../../../docs/streaming.md")]
struct Streaming;

/// As [`Streaming`].
#[cfg(all(doctest, feature = "full"))]
#[doc = include_str!("../../../docs/state.md")]
struct StateGuide;

/// As [`Streaming`].
#[cfg(all(doctest, feature = "full"))]
#[doc = include_str!("../../../docs/workflows.md")]
struct WorkflowGuide;

/// As [`Streaming`].
#[cfg(all(doctest, feature = "full"))]
#[doc = include_str!("../../../docs/behaviors.md")]
struct BehaviorGuide;

/// As [`Streaming`].
#[cfg(all(doctest, feature = "full"))]
#[doc = include_str!("../../../docs/failures.md")]
struct FailureGuide;

/// As [`Streaming`].
#[cfg(all(doctest, feature = "full"))]
#[doc = include_str!("../../../docs/testing.md")]
struct TestingGuide;
