//! The steps of a run that are at work in this process.

use std::task::{Context, Poll};

use crate::effect::{Stop, Work};
use crate::journal::{End, StepId};

/// Steps at work, in the order in which they began. They are few, so that all of them are polled each time,
/// which costs less than to know which of them can go on.
#[derive(Default)]
pub(super) struct Steps {
    last: u64,
    running: Vec<Running>,
    /// Of steps that ended untold; the next ones take them.
    unused: Vec<Stop>,
}

struct Running {
    id: StepId,
    work: Work,
    /// Tells it to end.
    stop: Stop,
}

impl Steps {
    /// Names the next step.
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

    /// Tells a step to end.
    pub(super) fn stop(&self, step: StepId) {
        if let Some(running) = self.running.iter().find(|running| running.id == step) {
            running.stop.stop();
        }
    }

    /// Returns a step that has ended, and how.
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
