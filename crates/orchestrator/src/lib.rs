//! Operators in one process.
//!
//! A [`LocalOrchestrator`] finds operators by name and dispatches them through the retry layer, which reads from each
//! failure whether a retry can help and whether the operator may have acted. An operator calls another one through its
//! [`Context`](layer0::operator::Context).
//!
//! It never retries after a layer below gave up, and knows nothing of models or tools.
//!
//! ```
//! use std::sync::Arc;
//! use async_trait::async_trait;
//! use layer0::error::OperatorError;
//! use layer0::operator::{Answer, Context, Task};
//! use layer0::{Operator, Orchestrator};
//! use backstop_orchestrator::LocalOrchestrator;
//!
//! struct Upper;
//!
//! #[async_trait]
//! impl Operator for Upper {
//!     fn name(&self) -> &str {
//!         "upper"
//!     }
//!     async fn run(&self, task: Task, _: &Context) -> Result<Answer, OperatorError> {
//!         let text = task.input.as_str().unwrap_or_default().to_uppercase();
//!         Ok(Answer::from_output(text.into()))
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let orchestrator = LocalOrchestrator::builder().operator(Upper).build()?;
//! let answer = orchestrator.dispatch("upper", Task::text("hello"), Context::root()).await?;
//! assert_eq!(answer.output, "HELLO");
//! # Ok(())
//! # }
//! ```

mod between;
mod books;
mod builder;
mod checked;
mod dispatch;
mod ids;
mod in_flight;
mod inner;
mod local;
mod many;
mod outside;
mod parked;
mod task;
mod usage;
mod workflow;

pub use builder::{LocalOrchestratorBuilder, OperatorNameError};
pub use ids::{new_run_id, new_session_id};
pub use local::LocalOrchestrator;
pub use workflow::{
    Diverged, DivergencePoint, Map, OnFailure, Parallel, Restart, Route, Sequence, Supervise,
    Workflow, WorkflowRecordError, is_workflow, replay_workflow,
};
