//! Common names of most programs: `use backstop::prelude::*;`.
//!
//! ```
//! use backstop::prelude::*;
//!
//! /// Add two integers.
//! #[tool(idempotent)]
//! async fn add(x: i64, y: i64) -> Result<i64, ToolError> {
//!     x.checked_add(y).ok_or_else(|| ToolError::ExecutionFailed("the sum is too large".into()))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let agent = Agent::builder(ScriptedProvider::saying(["hello"]))
//!     .tool(add)
//!     .budget(Budget::new().model_calls(20))
//!     .build()?;
//! assert_eq!(agent.run("Say hello.").await?.stop, Stop::Completed);
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "anthropic")]
pub use crate::Anthropic;
#[cfg(feature = "bedrock")]
pub use crate::Bedrock;
#[cfg(feature = "sqlite")]
pub use crate::Database;
#[cfg(feature = "gemini")]
pub use crate::Gemini;
#[cfg(feature = "ollama")]
pub use crate::Ollama;
pub use crate::{
    Agent, AgentError, Budget, Failure, FnTool, Limits, LocalOrchestrator, ModelSettings, Provider,
    ProviderError, RunFailure, RunOutcome, RunRequest, ScriptedAnswer, ScriptedProvider, State,
    Stop, Tool, ToolContext, ToolError, tool,
};
#[cfg(feature = "openai")]
pub use crate::{OpenAi, OpenAiResponses};
