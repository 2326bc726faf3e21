//! A batch on its way to its tools.

use backstop_react_machine::ToolBatch;
use backstop_tool::Admitted;
use layer0::JsonText;
use layer0::event::EventKind;
use layer0::id::CallId;
use layer0::message::ToolCall;

/// A batch on its way to its tools, while hooks are asked about it.
pub(super) struct Admission {
    pub(super) batch: ToolBatch,
    /// What is decided on each call, once the gates let them through.
    pub(super) verdicts: Vec<AdmissionVerdict>,
}

/// What is decided on a call.
pub(super) struct AdmissionVerdict {
    /// What its hooks left for the record.
    pub(super) notes: Vec<EventKind>,
    pub(super) outcome: Outcome,
}

pub(super) enum Outcome {
    /// It may run, if the budget has an execution left.
    Admitted(ToolCall, Admitted),
    /// It is refused with this answer.
    Answered(EventKind),
    /// A person has to agree to it with these arguments.
    Held(CallId, JsonText),
}
