//! Calls of unknown outcome: tools are asked what became of them, people say it.

use std::sync::Arc;

use layer0::event::{Actor, ToolProbed, ToolResolved, ToolResponded, Verdict};
use layer0::id::CallId;

use super::step::Step;
use super::{Machine, Run};
use crate::io::Misuse;
use crate::phase::Phase;
use crate::phase::batch::{Batch, Place};
use crate::text::late_verdict;

impl Machine {
    /// Returns id and tool of the calls of which a person can say what became of them: those that may be
    /// running, and those whose answers leave it open.
    pub fn unsettled(&self) -> impl Iterator<Item = (&CallId, &Arc<str>)> {
        let batch = self.phase.batch();
        let running = batch.into_iter().flat_map(Batch::running);
        let running = running.filter(move |(id, tool)| {
            !self.run.dispatches(tool) && !batch.is_some_and(|batch| batch.is_settled(id))
        });
        running.chain(self.run.unsettled.iter())
    }

    /// Returns the answered calls that leave it open whether they happened and whose tools can be asked. In a copy,
    /// the calls of the copied run are not among them: their keys are that run's.
    #[must_use]
    pub fn probeable(&self) -> Vec<CallId> {
        let can_probe = |tool: &str| self.run.spec(tool).is_some_and(|spec| spec.probe);
        let own = self.run.unsettled.own();
        let probeable = own.filter(|(_, tool)| can_probe(tool) && !self.run.is_idempotent(tool));
        probeable.map(|(call, _)| call.clone()).collect()
    }

    /// Returns the answer of a call that is running, where a person said what became of it.
    #[must_use]
    pub fn settlement(&self, call: &CallId) -> Option<ToolResponded> {
        self.phase.batch()?.settlement_of(call)
    }
}

impl Run {
    /// Is what a person says of this call not known yet?
    pub(super) fn check_settlement<'p>(
        &self,
        phase: &'p mut Phase,
        resolved: ToolResolved,
    ) -> Result<Step<'p>, Misuse> {
        let event = "tool.resolved";
        if resolved.verdict == Verdict::Unknown {
            return Err(Misuse::Unexpected { event, state: "it says nothing" });
        }
        let id = &resolved.call_id;
        if self.unsettled.contains(id) {
            return Ok(Step::SettledLate(resolved));
        }
        let Phase::Working(batch) = phase else { return Err(Misuse::UnknownCall(id.clone())) };
        let place = batch.check_running(event, id)?;
        let (_, tool) = batch.call_at(place);
        match self.dispatches(&tool) || batch.is_settled(id) {
            true => Err(Misuse::UnknownCall(id.clone())),
            false => Ok(Step::Settled(batch, place, resolved)),
        }
    }

    /// Keeps what a person said of a call until it is answered.
    pub(super) fn settled(
        &mut self,
        batch: &mut Batch,
        place: Place,
        resolved: ToolResolved,
    ) -> Option<Phase> {
        let cause = batch.cause_at(place);
        batch.settle(place, &resolved);
        self.append(Actor::Person, Some(cause), resolved);
        None
    }

    /// Is the outcome of this call still unknown, in a run that is over?
    pub(super) fn check_late_probe<'p>(&self, probed: ToolProbed) -> Result<Step<'p>, Misuse> {
        match self.unsettled.contains(&probed.call_id) {
            true => Ok(Step::ProbedLate(probed)),
            false => Err(Misuse::UnknownCall(probed.call_id)),
        }
    }

    /// Tells the model what the tool of an answered call said of it, when it is asked next: the answer stays as it
    /// is.
    pub(super) fn probed_late(&mut self, probed: ToolProbed) -> Option<Phase> {
        let tool = self.unsettled.tool(&probed.call_id);
        let text = tool.and_then(|tool| late_verdict(tool, &probed));
        if let Some(text) = text {
            self.conversation.add_further_input(&text);
            self.unsettled.settle(&probed.call_id);
        }
        self.append(Actor::Runtime, None, probed);
        None
    }

    /// Tells the model what a person said of a call, when it is asked next: the answer stays as it is.
    pub(super) fn settled_late(&mut self, resolved: ToolResolved) -> Option<Phase> {
        self.unsettled.settle(&resolved.call_id);
        self.conversation.add_further_input(&resolved.message);
        self.append(Actor::Person, None, resolved);
        None
    }
}
