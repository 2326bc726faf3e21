//! The ReAct run as a state machine without I/O.
//!
//! A [`Machine`] takes [`Input`]s (what happened, as facts of the log), and gives [`Output`]s: log
//! entries to append, [`Effect`]s to perform, and the end. Everything it knows, it knows from its
//! inputs, so that folding a run's log rebuilds it exactly.
//!
//! It never reads a clock, performs I/O, waits, spawns, draws a random number or iterates in hash
//! order. Time comes in with each input and never runs backwards inside.
//!
//! ```
//! use std::sync::Arc;
//! use layer0::{JsonText, Timestamp};
//! use layer0::event::{AgentRecord, RunStarted};
//! use react_machine::{AgentDefinition, Effect, Input, Machine, Output};
//!
//! let definition = AgentDefinition::new("demo", "You are brief.");
//! let mut machine = Machine::new(Arc::new(definition))?;
//! let started = RunStarted {
//!     input: "hello".into(),
//!     images: Arc::default(),
//!     session: "s-1".into(),
//!     agent: AgentRecord {
//!         name: "demo".into(),
//!         digest: "".into(),
//!         definition: JsonText::default(),
//!     },
//!     parent: None,
//!     follows: None,
//! };
//! machine.handle(Input::fact(Timestamp::default(), started))?;
//!
//! // One input, then drain: append what is to be appended, then perform the effects.
//! assert!(matches!(machine.poll(), Output::Append(entry) if entry.kind.event_type() == "run.started"));
//! assert!(matches!(machine.poll(), Output::Append(entry) if entry.kind.event_type() == "model.requested"));
//! assert!(matches!(machine.poll(), Output::Perform(Effect::CallModel(_))));
//! assert!(matches!(machine.poll(), Output::Wait));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod approvals;
mod batch;
mod definition;
mod digest;
mod ending;
mod guards;
mod hooks;
mod budget;
mod checking;
mod io;
mod machine;
mod opening;
mod recovery;
mod replay;
mod signature;
mod turn;
mod typed;

pub use approvals::Denial;
pub use budget::{Budget, Price};
pub use definition::{AgentDefinition, DefinitionError, Limits};
pub use ending::BUDGET_CANCELLED;
pub use hooks::{HookPoint, HookRecord, Pause};
pub use io::{
    Approval, Effect, EffectId, Entry, FailureCause, Finish, Input, Misuse, ModelCall, Output,
    ToolBatch, ToolRun,
};
pub use machine::{CANCEL, Machine};
pub use recovery::INPUT;
pub use replay::{Divergence, Replay, Replayed};
pub use signature::call_signature;
pub use typed::OutputCheck;
