//! What comes from outside while a run is at work.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use backstop_clock::{Clock, VirtualClock};
use backstop_config::SignalTable;
use backstop_orchestrator::LocalOrchestrator;
use layer0::Orchestrator;
use layer0::error::OrchError;
use layer0::failure::Chain;
use layer0::id::{RunId, WorkflowId};
use layer0::operator::Signal;

/// Signals that could not be sent, and why.
#[derive(Debug, Clone, Default)]
pub(crate) struct Unsent(Arc<Mutex<Vec<String>>>);

impl Unsent {
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn push(&self, why: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(why);
    }
}

/// Sends signals to a run, each when it is due, counted from now.
pub(crate) fn send(
    signals: &[SignalTable],
    run: &RunId,
    orchestrator: LocalOrchestrator,
    clock: &VirtualClock,
) -> Unsent {
    let unsent = Unsent::default();
    let mut due: Vec<(Duration, Signal)> = signals
        .iter()
        .map(|table| {
            let signal = Signal::new(table.name.as_str(), table.data.clone());
            (Duration::from_millis(table.at_ms), signal)
        })
        .collect();
    due.sort_by_key(|(at, _)| *at);
    let (workflow, failed) = (WorkflowId::new(run.as_str()), unsent.clone());
    let (timer, began) = (clock.clone(), clock.monotonic());
    let sending = async move {
        for (at, signal) in due {
            let passed = timer.monotonic().saturating_sub(began);
            timer.sleep(at.saturating_sub(passed)).await;
            let name = signal.name.clone();
            match orchestrator.signal(&workflow, signal).await {
                // One that comes after the end is dropped.
                Ok(()) | Err(OrchError::WorkflowNotFound(_)) => {}
                Err(error) => failed.push(format!("signal `{name}`: {}", Chain(&error))),
            }
        }
    };
    tokio::spawn(clock.track(Box::pin(sending)));
    unsent
}
