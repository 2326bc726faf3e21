//! Operators as tools of an MCP server.
//!
//! A [`Server`] offers the operators of an orchestrator to any MCP client, over standard input and output or over
//! HTTP. Each is a tool of its name, with one argument, `input`. A run that fails, or that stops before its work is
//! done, is a result with `isError`, whose structured content has the code, whether trying again can help and
//! whether it may have acted. A run that takes long, or waits for a person, is answered with its id; the same tool,
//! called with that id as `run`, answers with what became of it.
//!
//! It never answers for a run that was cut as if it had completed, and listens beyond this machine only with a
//! token.
//!
//! ```
//! use backstop_mcp_server::{Offer, Server};
//! use backstop_orchestrator::LocalOrchestrator;
//! # use async_trait::async_trait;
//! # use layer0::error::OperatorError;
//! # use layer0::operator::{Answer, Context, Task};
//! # struct Upper;
//! # #[async_trait]
//! # impl layer0::Operator for Upper {
//! #     fn name(&self) -> &str { "upper" }
//! #     async fn run(&self, task: Task, _: &Context) -> Result<Answer, OperatorError> {
//! #         Ok(Answer::completed(task.input))
//! #     }
//! # }
//!
//! let orchestrator = LocalOrchestrator::builder().operator(Upper).build()?;
//! let server = Server::new(orchestrator).offer(Offer::new("upper", "Writes text in capitals."));
//! # let _ = server;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod answer;
mod call;
mod clients;
mod ended;
mod error;
mod handler;
mod http_door;
mod input_end;
mod key_locks;
mod mended;
mod offer;
mod origin;
mod runs;
mod server;

pub use error::ServeError;
pub use offer::Offer;
pub use server::Server;
