//! The running steps of a run in this process.

use std::task::{Context, Poll};

use crate::effect::{Stop, Work};
use crate::journal::{End, StepId};

/// Running steps, in the order in which they began. They are few, so polling all of them costs less than tracking which
/// of them can make progress.
#[derive(Default)]
pub(super) struct Steps {
    last: u64,
    running: Vec<Running>,
    /// Unset stop flags of ended steps, reused by the next ones.
    unused: Vec<Stop>,
}

struct Running {
    id: StepId,
    work: Work,
    /// Stop flag of the step.
    stop: Stop,
}

impl Steps {
    /// Returns the id of the next step.
    pub(super) const fn next_id(&mut self) -> StepId {
        self.last += 1;
        StepId(self.last)
    }

    /// Begins a step.
    pub(super) fn begin(&mut self, id: StepId, work: impl FnOnce(Stop) -> Work) {
        let stop = self.unused.pop().unwrap_or_default();
        let work = work(stop.clone());
        self.running.push(Running { id, work, stop });
    }

    /// Stops a step.
    pub(super) fn stop(&self, step: StepId) {
        if let Some(running) = self.running.iter().find(|running| running.id == step) {
            running.stop.stop();
        }
    }

    /// Returns a step that has ended, with its end.
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<(StepId, End)> {
        for place in 0..self.running.len() {
            if let Poll::Ready(end) = self.running[place].work.as_mut().poll(context) {
                let Running { id, stop, .. } = self.running.remove(place);
                if !stop.is_stopped() {
                    self.unused.push(stop);
                }
                return Poll::Ready((id, end));
            }
        }
        Poll::Pending
    }
}
