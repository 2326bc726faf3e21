//! Operators as tools of an MCP server.
//!
//! A [`Server`] offers the operators of an orchestrator to any MCP client, over standard input and output or over HTTP.
//! Each operator is a tool with its name and one argument, `input`. A run that fails, or that stops before its work is
//! done, is a result with `isError`, whose structured content has the code, whether a retry can help and whether the
//! run may have acted. A run that takes long, or waits for a person, is answered with its id; calling the same tool
//! with that id as `run` returns its result.
//!
//! It never reports a run that was cut off as completed, and accepts connections from other machines only with a token.
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
//! #         Ok(Answer::from_output(task.input))
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
mod cors;
mod ended;
mod error;
mod handler;
mod http_door;
mod key_locks;
mod lines;
mod offer;
mod origin;
mod private_keys;
mod runs;
mod server;

pub use error::ServeError;
pub use offer::Offer;
pub use server::Server;
