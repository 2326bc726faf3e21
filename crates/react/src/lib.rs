//! The ReAct operator: a model, its tools, and the loop between them, under the failure model.
//!
//! [`Agent`] is what people build and run. A run ends in `Ok` with a [`RunOutcome`] (completed, or
//! stopped with a reason) or in `Err` with a [`RunFailure`] that carries what was done until then.
//! Tool failures never end a run: the model reads them.
//!
//! The loop itself is the sans-IO machine of `react-machine`; this crate drives it. It is the one
//! place that performs effects: what the machine decided is appended to the log first, then acted
//! on. It never decides whether a failed attempt is followed by another (the policy of `retry` does,
//! which it asks), nor what a failure means (the error says so), and never lets a subscriber slow a
//! run down.
//!
//! Start at [`Agent::builder`].

mod abandon;
mod agent;
mod agent_tool;
mod approval;
mod build_error;
mod builder;
mod build;
mod callers;
mod control;
mod decide_error;
mod digest;
mod dispatch;
mod effect;
mod endpoint;
mod error;
mod feed;
mod fold;
mod form;
mod guard;
mod guarded;
mod history;
mod hook;
mod ids;
mod inner;
mod journal;
mod label;
mod live;
mod local_journal;
mod memory;
mod operator;
mod operator_tool;
mod outcome;
mod output_check;
mod prices;
mod pack;
mod place;
mod pool;
mod past;
mod recordable;
mod request;
mod reopen;
mod resume;
mod resume_error;
mod run;
mod run_clock;
mod settle;
mod shown;
mod source;
mod status;
mod stores;
mod stream;
mod transcript;
#[cfg(feature = "json-schema")]
mod typed;
#[cfg(not(feature = "json-schema"))]
mod untyped;
mod upstream;
mod wire_names;

pub use agent::Agent;
pub use agent_tool::AgentTool;
pub use approval::{ApprovalDesk, ApprovalRequest, Approver};
pub use backstop_event_log::{Decision, Settlement};
pub use backstop_react_machine::{
    Approval, Budget, DefinitionError, Divergence, Finish, HookPoint, Limits, Misuse,
    NotReopenable, Price,
};
pub use build_error::{BuildError, PackError};
pub use builder::AgentBuilder;
pub use callers::open_root;
pub use control::{cancel, decide};
pub use decide_error::{ApprovalNotFound, DecideError};
pub use error::{AgentError, RecordedFailure, RunFailure};
pub use history::{History, HistoryFault, RequestError};
pub use hook::{Gate, HookContext, HookError, Moment, Observer, Verdict};
pub use ids::new_run_id;
pub use label::LabelError;
pub use live::{Live, Piece, Subscriber};
pub use memory::{Memory, MemoryEntry, MemoryQuery, RecentMemory};
pub use operator_tool::OperatorTool;
pub use outcome::RunOutcome;
pub use pack::Pack;
pub use past::{said_before, said_until};
pub use prices::{known_price, prices_as_of};
pub use recordable::redacted_decision;
pub use reopen::ReopenRequest;
pub use request::RunRequest;
pub use resume::{ForkRequest, ResumeRequest, replay};
pub use resume_error::ResumeError;
pub use run::finish::recorded;
pub use settle::{redacted_settlement, resolve};
pub use source::Source;
pub use status::{RunStatus, priced, status};
pub use stream::{RunStream, StreamItem};
pub use tokio_util::sync::CancellationToken;
#[cfg(feature = "json-schema")]
pub use typed::TypedOutcome;
pub use upstream::{Upstream, attempt_labels};
