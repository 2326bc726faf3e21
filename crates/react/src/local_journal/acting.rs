//! The steps of a run that act on the world, for a process that waits for them before it ends.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::{ActionGuard, Lease};

use crate::journal::StepId;

/// Interval of the checks for steps that began to act after the run had to stop acting.
const CHECK_EVERY: Duration = Duration::from_millis(20);

/// Steps that act, each until its end is recorded. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Acting(Arc<Mutex<ActingSteps>>);

#[derive(Default)]
struct ActingSteps {
    open: Vec<(StepId, ActionGuard)>,
    /// Steps whose end was delivered to the run and is not recorded yet.
    told: Vec<ActionGuard>,
}

impl Acting {
    /// Registers the begin of a step.
    pub(super) fn begin(&self, step: StepId, at_work: Option<ActionGuard>) {
        if let Some(at_work) = at_work {
            self.steps().open.push((step, at_work));
        }
    }

    /// Registers that the end of a step was delivered to the run.
    pub(super) fn mark_delivered(&self, step: StepId) {
        let mut steps = self.steps();
        let ActingSteps { open, told } = &mut *steps;
        told.extend(open.extract_if(.., |(id, _)| *id == step).map(|(_, at_work)| at_work));
    }

    /// Registers that the run has recorded all delivered ends.
    pub(super) fn mark_recorded(&self) {
        self.steps().told.clear();
    }

    /// Waits until the run has to be dropped: its lease has ended, or a step acts that has to stop.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub(super) async fn until_lost(&self, lease: &dyn Lease) {
        let until_stopped = async {
            loop {
                lease.must_stop().await;
                if self.has_open() {
                    return;
                }
                SystemClock.sleep(CHECK_EVERY).await;
            }
        };
        tokio::select! {
            () = lease.wait_for_end() => {}
            () = until_stopped => {}
        }
    }

    fn has_open(&self) -> bool {
        !self.steps().open.is_empty()
    }

    fn steps(&self) -> MutexGuard<'_, ActingSteps> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
