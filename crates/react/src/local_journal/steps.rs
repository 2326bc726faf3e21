//! The running steps of a run in this process.

use std::task::{Context, Poll};

use crate::effect::{StopFlag, Work};
use crate::journal::{StepEnd, StepId};

/// Running steps, in the order in which they began. They are few, so polling all of them costs less than tracking which
/// of them can make progress.
#[derive(Default)]
pub(super) struct RunningSteps {
    last: u64,
    running: Vec<RunningStep>,
    /// Unset stop flags of ended steps, reused by the next ones.
    unused: Vec<StopFlag>,
}

struct RunningStep {
    id: StepId,
    work: Work,
    /// Stop flag of the step.
    stop: StopFlag,
}

impl RunningSteps {
    /// Returns the id of the next step.
    pub(super) const fn next_id(&mut self) -> StepId {
        self.last += 1;
        StepId(self.last)
    }

    /// Begins a step.
    pub(super) fn begin(&mut self, id: StepId, work: impl FnOnce(StopFlag) -> Work) {
        let stop = self.unused.pop().unwrap_or_default();
        let work = work(stop.clone());
        self.running.push(RunningStep { id, work, stop });
    }

    /// Stops a step.
    pub(super) fn stop(&self, step: StepId) {
        if let Some(running) = self.running.iter().find(|running| running.id == step) {
            running.stop.stop();
        }
    }

    /// Returns a step that has ended, with its end.
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<(StepId, StepEnd)> {
        for place in 0..self.running.len() {
            if let Poll::Ready(end) = self.running[place].work.as_mut().poll(context) {
                let RunningStep { id, stop, .. } = self.running.remove(place);
                if !stop.is_stopped() {
                    self.unused.push(stop);
                }
                return Poll::Ready((id, end));
            }
        }
        Poll::Pending
    }
}
