//! The ReAct operator: a model, its tools, and the loop between them, under the failure model.
//!
//! [`Agent`] is what people build and run. A run ends in `Ok` with a [`RunOutcome`] (completed, or
//! stopped with a reason) or in `Err` with a [`RunFailure`] that carries what was done until then.
//! Tool failures never end a run: the model reads them.
//!
//! The loop itself is the sans-IO machine of `react-machine`; this crate drives it. It is the one
//! place that performs effects: what the machine decided is appended to the log first, then acted
//! on. It never retries (the tower stack does), never decides what a failure means (the error says
//! so) and never lets a subscriber slow a run down.
//!
//! Start at [`Agent::builder`].

mod agent;
mod builder;
mod building;
mod agent_tool;
mod alarm;
mod digest;
mod driver;
mod ending;
mod memory;
mod large;
mod asking;
mod admitting;
mod approval;
mod deciding;
mod hook;
mod hooking;
mod error;
mod failing;
mod folding;
mod live;
mod model;
mod operator;
mod outcome;
mod pack;
mod redacting;
mod resume;
mod resuming;
mod sessions;
mod source;
mod starting;
mod status;
mod stopping;
mod running;
mod tool_run;
mod typed;
mod upstream;

pub use agent::{Agent, RunRequest, new_run_id};
pub use agent_tool::AgentTool;
pub use approval::{ApprovalDesk, ApprovalNotFound, ApprovalRequest, Approver};
pub use builder::AgentBuilder;
pub use building::BuildError;
pub use ending::recorded;
pub use error::{AgentError, RecordedFailure, RunFailure};
pub use event_log::Decision;
pub use hook::{Gate, HookContext, HookError, Moment, Observer, Verdict};
pub use live::{Live, Piece, Subscriber};
pub use memory::{Memory, MemoryEntry, MemoryQuery, RecentMemory};
pub use outcome::RunOutcome;
pub use pack::{Pack, PackError};
pub use react_machine::{
    Approval, Budget, DefinitionError, Divergence, Finish, HookPoint, Limits, Price,
};
pub use resume::{ForkRequest, ResumeError, ResumeRequest, replay};
pub use source::Source;
pub use status::{RunStatus, priced, status};
pub use tokio_util::sync::CancellationToken;
pub use typed::TypedOutcome;
pub use upstream::{Upstream, attempt_labels};
