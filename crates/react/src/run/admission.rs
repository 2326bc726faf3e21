//! A batch of tool calls in admission.

use backstop_react_machine::ToolBatch;
use backstop_tool::Admitted;
use layer0::JsonText;
use layer0::event::EventKind;
use layer0::id::CallId;
use layer0::message::ToolCall;

/// A batch of tool calls in admission, while its hooks are called.
pub(super) struct Admission {
    pub(super) batch: ToolBatch,
    /// The verdict on each call, after the gates.
    pub(super) verdicts: Vec<AdmissionVerdict>,
}

/// The verdict on a call.
pub(super) struct AdmissionVerdict {
    /// Entries of its hooks for the record.
    pub(super) notes: Vec<EventKind>,
    pub(super) outcome: AdmissionOutcome,
}

pub(super) enum AdmissionOutcome {
    /// It may run, if the budget has an execution left.
    Admitted(ToolCall, Admitted),
    /// It is refused with this answer.
    Answered(EventKind),
    /// A person has to agree to it with these arguments.
    Held(CallId, JsonText),
}
