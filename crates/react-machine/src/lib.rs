//! The ReAct run as a state machine without I/O.
//!
//! A [`Machine`] takes [`MachineInput`]s (facts of the log) and returns [`MachineOutput`]s: log entries to append, [`MachineAction`]s to
//! perform, and the end. Its whole state comes from its inputs, so that folding a run's log rebuilds it exactly.
//!
//! It never reads a clock, performs I/O, waits, spawns, draws a random number or iterates in hash order. Time is part
//! of each input and never runs backwards inside.
//!
//! ```
//! use layer0::{JsonText, Timestamp};
//! use layer0::event::{AgentRecord, RunStarted};
//! use backstop_react_machine::{AgentDefinition, CheckedDefinition, MachineAction, MachineInput, Machine, MachineOutput, Setup};
//!
//! let definition = CheckedDefinition::new(AgentDefinition::new("demo", "You are brief."))?;
//! let mut machine = Machine::new(definition, Setup::new("run_1".into()));
//! let agent = AgentRecord::new("demo", "", JsonText::default());
//! let mut started = RunStarted::new("hello", "s-1".into(), agent);
//! started.machine = backstop_react_machine::VERSION;
//! machine.handle(MachineInput::fact(Timestamp::default(), started))?;
//!
//! // One input, then drain: append what is to be appended, then perform the effects.
//! assert!(matches!(machine.poll(), MachineOutput::Append(entry) if entry.kind.event_type() == "run.started"));
//! assert!(matches!(machine.poll(), MachineOutput::Append(entry) if entry.kind.event_type() == "model.requested"));
//! assert!(matches!(machine.poll(), MachineOutput::Perform(MachineAction::CallModel(_))));
//! assert!(matches!(machine.poll(), MachineOutput::Wait));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod budget;
mod clock;
mod conversation;
mod crashes;
mod definition;
mod denials;
mod digest;
mod failure;
mod fnv;
mod guards;
mod history;
mod hook;
mod io;
mod limits;
mod machine;
mod meter;
mod outbox;
mod phase;
mod price;
mod replay;
mod reopen;
mod signature;
mod spend_limit;
pub mod text;
mod tool_message;
mod typed;
mod unsettled;

pub use budget::Budget;
pub use definition::{AgentDefinition, CheckedDefinition, DefinitionError};
pub use denials::Denial;
pub use failure::FailureCause;
pub use history::collect_messages;
pub use hook::{HookPoint, HookRecord};
pub use io::{
    Approval, EffectId, Finish, MachineAction, MachineEntry, MachineInput, MachineOutput, Misuse,
    ModelCall, Pause, ToolBatch, ToolRun,
};
pub use limits::Limits;
pub use machine::{BUDGET_CANCELLED, CANCEL, INPUT, Machine, Setup, VERSION};
pub use meter::{ChildDispatch, ChildWait, Grant, NoBudgetLeft};
pub use price::Price;
pub use reopen::{CONTINUE, NotReopenable};
pub use replay::{Divergence, Replay, Replayed};
pub use signature::call_signature;
pub use spend_limit::{InvalidLimitScope, LimitPeriod, LimitScope, SpendLimit};
pub use typed::{OutputCheck, without_instruction};
