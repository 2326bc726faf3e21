//! A run whose process dies again and again at the same step.

use layer0::event::{Actor, RunRecovered, ToolResponded, Verdict};
use layer0::id::CallId;

use super::MachineState;
use crate::failure::FailureCause;
use crate::phase::RunPhase;
use crate::phase::batch::CallBatch;
use crate::phase::paused::{Paused, PausedStep, PlannedEnd};

/// Text for the model about a call that did not begin.
const CANCELLED: &str = "Cancelled: the process died again and again";

impl MachineState {
    /// Fails the run with the steps that were open each time; none of them is repeated.
    pub(super) fn end_crash_loop(
        &mut self,
        phase: &mut RunPhase,
        recovered: RunRecovered,
    ) -> RunPhase {
        let failure = FailureCause::CrashLoop { open: self.open_in(phase).into() };
        self.meter.count_lost_attempts(recovered.models);
        let seq = self.append(Actor::Runtime, None, recovered);
        if let RunPhase::Working(batch) = phase {
            self.answer_running(batch, seq);
        }
        self.answer_open(phase, seq, CANCELLED);
        match phase {
            // The last hooks may be the cause of the crashes.
            RunPhase::Hooking(Paused { step: PausedStep::End(_), .. }) => {
                self.conclude(seq, &PlannedEnd::Failed(failure))
            }
            _ => self.fail(seq, failure),
        }
    }

    /// Answers the calls that may have acted.
    fn answer_running(&mut self, batch: &mut CallBatch, cause: u64) {
        let running: Vec<CallId> = batch.running().map(|(id, _)| id.clone()).collect();
        for call in running {
            let place = batch.check_running("tool.responded", &call);
            let place = place.expect("the answer of one call leaves the others running");
            let (id, tool) = batch.call_at(place);
            let answer = batch
                .settlement_at(place)
                .unwrap_or_else(|| ToolResponded::from_verdict(id, tool, Verdict::Unknown, None));
            // A hook that wants to stop the run is too late: the run is ending.
            let _ = self.answer_call(batch, place, Actor::Machine, cause, answer);
        }
    }

    /// Returns a text for people about the open step of a run.
    fn open_in(&self, phase: &RunPhase) -> String {
        match phase {
            RunPhase::Asking(turn) => format!("model call {}", turn.ask().call),
            RunPhase::Working(batch) => {
                let call = |(id, tool)| format!("call `{id}` of `{tool}`");
                let running: Vec<String> = batch.running().map(call).collect();
                match &running[..] {
                    [] => "the admission of tool calls".to_owned(),
                    running => running.join(", "),
                }
            }
            RunPhase::Hooking(paused) => format!("the hooks of `{}`", paused.point().as_str()),
            RunPhase::Short(_) => "asking the caller for more of its budget".to_owned(),
            RunPhase::Recalling => "reading the memory".to_owned(),
            RunPhase::Memorizing(_) => "writing the memory".to_owned(),
            RunPhase::New | RunPhase::Parked(_) | RunPhase::Done(_) => "nothing".to_owned(),
        }
    }
}
