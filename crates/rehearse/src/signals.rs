//! Signals from outside to a running run.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use backstop_clock::{Clock, VirtualClock};
use backstop_config::SignalTable;
use backstop_event_log::EventLog;
use backstop_orchestrator::LocalOrchestrator;
use layer0::Orchestrator;
use layer0::error::OrchError;
use layer0::failure::Chain;
use layer0::id::{RunId, WorkflowId};
use layer0::operator::Signal;

use crate::agents::ScenarioParts;
use crate::marks::ReachMark;

/// Signals that could not be sent, with the reasons.
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

/// Sends signals to a run, each at its time, measured from the start of the run.
pub(crate) fn send(
    signals: &[SignalTable],
    run: &RunId,
    orchestrator: LocalOrchestrator,
    shared: &ScenarioParts,
    clock: &VirtualClock,
) -> Unsent {
    let unsent = Unsent::default();
    let mut due: Vec<(Duration, Signal, ReachMark)> = signals
        .iter()
        .map(|table| {
            let signal = Signal::new(table.name.as_str(), table.data.clone());
            let mark = shared.marks.add(format!("signal `{}` at {} ms", table.name, table.at_ms));
            (Duration::from_millis(table.at_ms), signal, mark)
        })
        .collect();
    due.sort_by_key(|(at, ..)| *at);
    let (run, failed, log) = (run.clone(), unsent.clone(), Arc::clone(&shared.log));
    let timer = clock.clone();
    let sending = async move {
        wait_for_start(&*log, &run).await;
        let (workflow, began) = (WorkflowId::new(run.as_str()), timer.monotonic());
        for (at, signal, mark) in due {
            let passed = timer.monotonic().saturating_sub(began);
            timer.sleep(at.saturating_sub(passed)).await;
            let name = signal.name.clone();
            match orchestrator.signal(&workflow, signal).await {
                Ok(()) => mark.reach(),
                // The run is over: the signal is reported as unused.
                Err(OrchError::WorkflowNotFound(_)) => {}
                Err(error) => failed.push(format!("signal `{name}`: {}", Chain(&error))),
            }
        }
    };
    if !signals.is_empty() {
        tokio::spawn(clock.track(Box::pin(sending)));
    }
    unsent
}

/// Waits for the first event of a run: a signal to a run that has none is dropped.
async fn wait_for_start(log: &dyn EventLog, run: &RunId) {
    let mut watch = log.watch_events();
    while !matches!(log.summary(run).await, Ok(Some(_))) {
        watch.wait_for_change().await;
    }
}
