//! Calls that were answered and may have acted: what became of them is not known.

use std::collections::BTreeMap;
use std::sync::Arc;

use layer0::code;
use layer0::event::{ToolFailure, ToolResponded};
use layer0::id::CallId;

/// The calls of a run whose answers leave open whether they happened, until a person says it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Unsettled(BTreeMap<CallId, Arc<str>>);

impl Unsettled {
    /// Takes in the answer of a call that had begun.
    pub(crate) fn note(&mut self, answer: &ToolResponded) {
        if answer.error.as_ref().is_some_and(may_have_acted) {
            self.0.insert(answer.call_id.clone(), Arc::clone(&answer.tool));
        }
    }

    pub(crate) fn settle(&mut self, call: &CallId) {
        self.0.remove(call);
    }

    pub(crate) fn contains(&self, call: &CallId) -> bool {
        self.0.contains_key(call)
    }

    /// Returns id and tool of each.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&CallId, &Arc<str>)> {
        self.0.iter()
    }
}

/// Does this failure leave open whether the call acted?
fn may_have_acted(failure: &ToolFailure) -> bool {
    !matches!(
        failure.reason.as_str(),
        code::APPROVAL_DENIED
            | code::TOOL_APPROVAL_DENIED
            | code::TOOL_INVALID_INPUT
            | code::TOOL_NOT_FOUND
            | code::TOOL_PERMISSION_DENIED
            | code::TOOL_REPEATED_FAILURE
            | code::TOOL_SKIPPED
    )
}
