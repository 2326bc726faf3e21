//! LLM agents whose failures have one place to land.
//!
//! This is the facade: it gathers what an application writes against and adds no logic. Each part
//! is a crate of its own that can be used alone.
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
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
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
//! What is not named here is in the crates re-exported beside it ([`provider`], [`event_log`], …), so
//! that a provider or a store of your own needs no further dependency.
//!
//! Start at [`Agent::builder`]; swap [`ScriptedProvider`] for [`Anthropic`], [`Bedrock`], [`Gemini`],
//! [`Ollama`], [`OpenAi`] or [`OpenAiResponses`]; keep a record with [`Database`]; compose agents with [`LocalOrchestrator`].

mod error;

pub use ::{clock, error_store, event_log, layer0, provider, react, retry};
pub use config::{InvalidStoreUrl, StoreUrl};
pub use error::{
    ConfigurationError, Error, ExecutionError, RegistrationError, ReplayError, StorageError,
};
pub use error_store::{ErrorStore, MemoryErrorStore, MemoryResultStore, ResultStore};
pub use event_log::{EventLog, MemoryLog, Trace, read_events};
pub use layer0::message::Image;
pub use layer0::{Code, Effect, Failure, Operator, Orchestrator, Retry};
pub use orchestrator::{LocalOrchestrator, OperatorNameError};
pub use provider::{Provider, ProviderError, ScriptedAnswer, ScriptedProvider};
pub use provider_anthropic::Anthropic;
pub use provider_bedrock::{AwsCredentials, Bedrock};
pub use provider_gemini::Gemini;
pub use provider_http::{ApiKey, ConfigError as ProviderConfigError, Timeouts, deny_real_requests};
pub use provider_ollama::Ollama;
pub use provider_openai::{OpenAi, OpenAiResponses};
pub use react::{
    Agent, AgentBuilder, AgentError, AgentTool, ApprovalDesk, ApprovalNotFound, ApprovalRequest,
    Approver, Budget, BuildError, CancellationToken, Decision, Gate, History, HistoryFault,
    HookContext, HookError, HookPoint, Limits, Live, Memory, Moment, Observer, Pack, PackError,
    Piece, RequestError, RunFailure, RunOutcome, RunRequest, RunStream, StreamItem, Subscriber,
    TypedOutcome, Upstream, Verdict,
};
pub use redact::Redactor;
pub use retry::RetryConfig;
pub use store_sqlite::{BackupError, Database, Durability, OpenError, RemoveError, StoreRetention};
pub use tool::{Grants, PatternError, Tool, ToolContext, ToolError, ToolSpec, Toolset};
pub use tool_macros::backstop_tool as tool;

/// What the code written by [`macro@tool`] calls; not for people.
#[doc(hidden)]
pub use ::tool as __tool;

/// The README's program, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The guide's programs, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/streaming.md")]
struct Streaming;
