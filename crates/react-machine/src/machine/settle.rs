//! Calls of unknown outcome, which are settled by probes of their tools or by people.

use std::sync::Arc;

use layer0::event::{Actor, ToolProbed, ToolResolved, ToolResponded, Verdict};
use layer0::id::CallId;

use super::step::Transition;
use super::{Machine, MachineState};
use crate::io::Misuse;
use crate::phase::RunPhase;
use crate::phase::batch::{CallBatch, CallIndex};
use crate::text::late_verdict;

impl Machine {
    /// Returns id and tool of the calls that a person can settle: those that may be running, and those with an unknown
    /// outcome.
    pub fn unsettled_calls(&self) -> impl Iterator<Item = (&CallId, &Arc<str>)> {
        let batch = self.phase.batch();
        let running = batch.into_iter().flat_map(CallBatch::running);
        let running = running.filter(move |(id, tool)| {
            !self.run.dispatches(tool) && !batch.is_some_and(|batch| batch.is_settled(id))
        });
        running.chain(self.run.unsettled.iter())
    }

    /// Returns the answered calls with an unknown outcome whose tools can be probed. In a fork, the calls of the
    /// original run are left out, because their keys belong to the original run.
    #[must_use]
    pub fn probeable(&self) -> Vec<CallId> {
        let can_probe = |tool: &str| self.run.spec(tool).is_some_and(|spec| spec.probe);
        let own = self.run.unsettled.own();
        let probeable = own.filter(|(_, tool)| can_probe(tool) && !self.run.is_idempotent(tool));
        probeable.map(|(call, _)| call.clone()).collect()
    }

    /// Returns the answer of a running call that a person settled.
    #[must_use]
    pub fn settlement(&self, call: &CallId) -> Option<ToolResponded> {
        self.phase.batch()?.find_settlement(call)
    }
}

impl MachineState {
    /// Checks that the settlement by a person is new.
    pub(super) fn check_settlement<'p>(
        &self,
        phase: &'p mut RunPhase,
        resolved: ToolResolved,
    ) -> Result<Transition<'p>, Misuse> {
        let event = "tool.resolved";
        if resolved.verdict == Verdict::Unknown {
            return Err(Misuse::Unexpected { event, state: "it says nothing" });
        }
        let id = &resolved.call_id;
        if self.unsettled.contains(id) {
            return Ok(Transition::SettledLate(resolved));
        }
        let RunPhase::Working(batch) = phase else { return Err(Misuse::UnknownCall(id.clone())) };
        let place = batch.check_running(event, id)?;
        let (_, tool) = batch.call_at(place);
        match self.dispatches(&tool) || batch.is_settled(id) {
            true => Err(Misuse::UnknownCall(id.clone())),
            false => Ok(Transition::Settled(batch, place, resolved)),
        }
    }

    /// Stores the settlement of a call until the call is answered.
    pub(super) fn settle(
        &mut self,
        batch: &mut CallBatch,
        place: CallIndex,
        resolved: ToolResolved,
    ) -> Option<RunPhase> {
        let cause = batch.cause_at(place);
        batch.settle(place, &resolved);
        self.append(Actor::Person, Some(cause), resolved);
        None
    }

    /// Checks that the outcome of this call is still unknown, in a run that has ended.
    pub(super) fn check_late_probe<'p>(
        &self,
        probed: ToolProbed,
    ) -> Result<Transition<'p>, Misuse> {
        match self.unsettled.contains(&probed.call_id) {
            true => Ok(Transition::ProbedLate(probed)),
            false => Err(Misuse::UnknownCall(probed.call_id)),
        }
    }

    /// Adds the result of a probe of an answered call to the model's next request; the answer does not change.
    pub(super) fn probed_late(&mut self, probed: ToolProbed) -> Option<RunPhase> {
        let tool = self.unsettled.tool(&probed.call_id);
        let text = tool.and_then(|tool| late_verdict(tool, &probed));
        if let Some(text) = text {
            self.conversation.add_further_input(&text);
            self.unsettled.settle(&probed.call_id);
        }
        self.append(Actor::Runtime, None, probed);
        None
    }

    /// Adds the settlement of an answered call to the model's next request; the answer does not change.
    pub(super) fn settled_late(&mut self, resolved: ToolResolved) -> Option<RunPhase> {
        self.unsettled.settle(&resolved.call_id);
        self.conversation.add_further_input(&resolved.message);
        self.append(Actor::Person, None, resolved);
        None
    }
}
