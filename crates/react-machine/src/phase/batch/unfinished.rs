//! Calls of a batch that a process that died left open, and their settlements by people.

use std::sync::Arc;

use layer0::event::{ToolResolved, ToolResponded};
use layer0::id::CallId;
use layer0::message::ToolCall;

use super::{BatchCall, CallBatch, CallIndex, CallState};
use crate::io::Approval;

/// The places of calls that a process that died left open and that do not simply run again.
#[derive(Default)]
pub(crate) struct Sorted {
    /// Calls that are answered as interrupted.
    pub(crate) interrupted: Vec<CallIndex>,
    /// Calls whose tools are probed.
    pub(crate) probing: Vec<CallIndex>,
}

/// Open steps of a batch after a process died.
#[derive(Default)]
pub(crate) struct UnfinishedCalls {
    /// Calls that run again.
    pub(crate) rerun: Vec<CallIndex>,
    /// Calls that a person settled, with the resulting answers.
    pub(crate) settled: Vec<(CallIndex, ToolResponded)>,
    /// Calls that have not begun according to the record, and may have run in lost events.
    pub(crate) doubtful: Vec<CallIndex>,
    /// Calls that were not admitted yet.
    pub(crate) asked: Vec<CallId>,
    /// Calls that a person approved.
    pub(crate) decided: Vec<ToolCall>,
    /// Calls that a person approved with other arguments.
    pub(crate) changed: Vec<ToolCall>,
    /// Open approvals.
    pub(crate) held: Vec<Approval>,
}

impl BatchCall {
    fn settlement(&self) -> Option<ToolResponded> {
        let settled =
            self.settled.as_ref().filter(|_| matches!(self.state, CallState::Open { .. }))?;
        let (id, tool, output) = (self.id.clone(), Arc::clone(&self.tool), settled.output.clone());
        Some(ToolResponded::from_verdict(id, tool, settled.verdict, output))
    }
}

impl CallBatch {
    /// Stores the settlement of a running call.
    pub(crate) fn settle(&mut self, place: CallIndex, resolved: &ToolResolved) {
        self.calls[place.0].settled = Some(Box::new(resolved.clone()));
    }

    /// Returns whether a person settled a running call.
    pub(crate) fn is_settled(&self, id: &CallId) -> bool {
        self.find_settlement(id).is_some()
    }

    pub(crate) fn find_settlement(&self, id: &CallId) -> Option<ToolResponded> {
        self.find(id).ok().and_then(|place| self.settlement_at(place))
    }

    /// Returns the answer of a running call that a person settled.
    pub(crate) fn settlement_at(&self, place: CallIndex) -> Option<ToolResponded> {
        self.calls[place.0].settlement()
    }

    /// Returns the running calls that a person settled, with their answers.
    pub(crate) fn settled_calls(&self) -> Vec<(CallIndex, ToolResponded)> {
        let places = (0..self.calls.len()).map(CallIndex);
        places.filter_map(|place| Some((place, self.settlement_at(place)?))).collect()
    }

    /// Records that the record has lost events: calls that have not begun according to it may have run.
    pub(crate) const fn doubt(&mut self) {
        self.is_doubtful = true;
    }

    /// Returns whether the record has lost events since the last recovery.
    pub(crate) const fn is_doubtful(&self) -> bool {
        self.is_doubtful
    }

    /// Returns the steps to repeat after a process died. Tools that are not `repeatable` are called only if they
    /// certainly did not run.
    pub(crate) fn take_unfinished(
        &mut self,
        sorted: &Sorted,
        repeatable: impl Fn(&str) -> bool,
    ) -> UnfinishedCalls {
        self.is_copied = false;
        let has_lost = std::mem::take(&mut self.is_doubtful);
        let has_not_begun = |state: &CallState| {
            !matches!(state, CallState::Open { .. } | CallState::Answered { .. })
        };
        let is_doubtful =
            |call: &BatchCall| has_lost && has_not_begun(&call.state) && !repeatable(&call.tool);
        let is_sorted = |place: CallIndex| {
            sorted.interrupted.contains(&place) || sorted.probing.contains(&place)
        };
        let mut unfinished = UnfinishedCalls::default();
        for (place, call) in self.calls.iter().enumerate().map(|(at, call)| (CallIndex(at), call)) {
            if is_doubtful(call) {
                unfinished.doubtful.push(place);
                continue;
            }
            match &call.state {
                CallState::Open { .. } if let Some(answer) = call.settlement() => {
                    unfinished.settled.push((place, answer));
                }
                CallState::Open { .. } if !is_sorted(place) => {
                    unfinished.rerun.push(place);
                }
                CallState::Asked => unfinished.asked.push(call.id.clone()),
                CallState::Decided { approval, changed: true, .. } => {
                    unfinished.changed.push(approval.call());
                }
                CallState::Decided { approval, .. } => unfinished.decided.push(approval.call()),
                CallState::Held { approval, .. } => unfinished.held.push(approval.clone()),
                CallState::Open { .. } | CallState::Answered { .. } => {}
            }
        }
        unfinished
    }
}
