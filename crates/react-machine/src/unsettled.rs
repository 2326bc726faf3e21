//! Answered calls of unknown outcome, which may have acted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use layer0::code;
use layer0::event::{OperatorReturned, ToolFailure, ToolProbed, ToolResponded, Verdict};
use layer0::failure::Effect;
use layer0::id::CallId;
use layer0::stop::Outcome;

use crate::meter::ChildDispatch;

/// The calls of a run whose answers leave the outcome unknown, until a person settles them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Unsettled {
    calls: BTreeMap<CallId, Arc<str>>,
    /// The calls whose outcome a probe determined.
    certain: BTreeSet<CallId>,
    /// The calls of the run that this one is a fork of.
    copied: BTreeSet<CallId>,
    /// The calls with a child run that kept no record, did not complete, and may have acted.
    below: BTreeSet<CallId>,
}

impl Unsettled {
    /// Records the result of a probe.
    pub(crate) fn record_probe(&mut self, probed: &ToolProbed) {
        if probed.verdict != Verdict::Unknown {
            self.certain.insert(probed.call_id.clone());
        }
    }

    /// Records the end of a call's child run.
    pub(crate) fn record_return(&mut self, child: &ChildDispatch, returned: &OperatorReturned) {
        let is_certain =
            returned.outcome == Outcome::Completed || returned.effect == Some(Effect::None);
        if child.unrecorded && !is_certain {
            self.below.insert(child.call_id.clone());
        }
    }

    /// Returns whether a child run of a call leaves unknown whether it acted.
    pub(crate) fn has_acted_below(&self, call: &CallId) -> bool {
        self.below.contains(call)
    }

    /// Records the answer of a call that had begun.
    pub(crate) fn note(&mut self, answer: &ToolResponded) {
        let is_certain = self.certain.remove(&answer.call_id);
        if !is_certain && answer.error.as_ref().is_some_and(may_have_acted) {
            self.calls.insert(answer.call_id.clone(), Arc::clone(&answer.tool));
        }
    }

    pub(crate) fn settle(&mut self, call: &CallId) {
        self.calls.remove(call);
    }

    pub(crate) fn contains(&self, call: &CallId) -> bool {
        self.calls.contains_key(call)
    }

    /// Marks the calls until now as those of the original run, because the run becomes a fork.
    pub(crate) fn begin_copy(&mut self) {
        self.copied.extend(self.calls.keys().cloned());
    }

    /// Returns the tool of a call.
    pub(crate) fn tool(&self, call: &CallId) -> Option<&Arc<str>> {
        self.calls.get(call)
    }

    /// Returns id and tool of the calls that the run itself made.
    pub(crate) fn own(&self) -> impl Iterator<Item = (&CallId, &Arc<str>)> {
        self.calls.iter().filter(|(call, _)| !self.copied.contains(*call))
    }

    /// Returns id and tool of all calls.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&CallId, &Arc<str>)> {
        self.calls.iter()
    }
}

/// Returns whether this failure leaves unknown whether the call acted.
fn may_have_acted(failure: &ToolFailure) -> bool {
    !matches!(
        failure.reason.as_str(),
        code::APPROVAL_DENIED
            | code::TOOL_APPROVAL_DENIED
            | code::TOOL_DONE_ELSEWHERE
            | code::TOOL_INVALID_INPUT
            | code::TOOL_NOT_FOUND
            | code::TOOL_PERMISSION_DENIED
            | code::TOOL_REPEATED_FAILURE
            | code::TOOL_SKIPPED
    )
}
