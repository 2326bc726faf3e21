//! The ReAct operator: a model, its tools, and the loop between them, under the failure model.
//!
//! [`Agent`] is the type to build and run. A run ends in `Ok` with a [`RunOutcome`] (completed, or stopped with a
//! reason) or in `Err` with a [`RunFailure`] that carries the work done until then. Tool failures never end a run: the
//! model reads them.
//!
//! The loop itself is the sans-IO machine of `react-machine`; this crate drives it. It is the only place that performs
//! effects: a decision of the machine is first appended to the log, then performed. It never decides whether a failed
//! attempt is retried (the policy of `retry` does) or what a failure means (the error has its facts), and never lets a
//! subscriber slow a run down.
//!
//! Start at [`Agent::builder`].

#![cfg_attr(docsrs, feature(doc_cfg))]

mod agent;
mod approval;
mod input_form;
mod decide_error;
mod dispatch;
mod effect;
mod endpoint;
mod error;
mod feed;
mod form;
mod history;
mod hook;
mod journal;
mod label;
mod live;
mod local_journal;
mod memory;
mod once;
mod operator_tool;
mod outcome;
mod output_check;
mod prices;
mod record;
mod place;
mod pool;
mod recorded_tools;
mod request;
mod resume_error;
mod run;
mod shown;
mod spend_limits;
mod state_memory;
mod stores;
mod upstream;
mod wire_names;

pub use agent::Agent;
pub use agent::as_tool::AgentTool;
pub use agent::build_error::{BuildError, PackError};
pub use agent::builder::AgentBuilder;
pub use agent::control::{cancel, decide};
pub use agent::pack::{Pack, PackPart};
pub use agent::reopen::ReopenRequest;
pub use agent::resume::{ForkRequest, ResumeRequest, replay};
pub use agent::settle::{redacted_settlement, resolve};
pub use agent::status::{RunStatus, add_cost, status};
pub use agent::stream::{RunStream, StreamItem};
#[cfg(feature = "json-schema")]
pub use agent::typed::TypedOutcome;
pub use approval::{ApprovalDesk, ApprovalRequest, Approver};
pub use backstop_event_log::{Decision, Settlement};
pub use backstop_react_machine::{
    AgentDefinition, Approval, Budget, DefinitionError, Divergence, Finish, HookPoint, HookRecord,
    InvalidLimitScope, LimitPeriod, LimitScope, Limits, Misuse, NotReopenable, Price, SpendLimit,
};
pub use decide_error::{ApprovalNotFound, DecideError};
pub use error::{AgentError, LoggedFailure, RunFailure};
pub use history::{History, HistoryFault, RequestError};
pub use hook::{Gate, GateVerdict, HookContext, HookError, Moment, Observer};
pub use label::LabelError;
pub use live::{Live, LivePiece, Subscriber};
pub use memory::{Memory, MemoryEntry, MemoryQuery, RecentMemory};
pub use operator_tool::OperatorTool;
pub use outcome::RunOutcome;
pub use prices::{KnownPrice, known_price, known_prices, prices_date};
pub use record::copy::{CopyOutcome, copy_run};
pub use record::past::{said_before, said_until};
pub use record::recordable::redacted_decision;
pub use record::source::Source;
pub use recorded_tools::RecordedTools;
pub use request::RunRequest;
pub use resume_error::ResumeError;
pub use run::finish::read_outcome;
pub use state_memory::StateMemory;
pub use tokio_util::sync::CancellationToken;
pub use upstream::{Upstream, attempt_labels};
