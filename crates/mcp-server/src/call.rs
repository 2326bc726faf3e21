//! Calls that wait for a run.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use layer0::error::OrchError;
use layer0::operator::{Signal, Signals};
use tokio::sync::watch;

use crate::ended::{RecordState, WorkEnd};

/// A known run. Clones refer to the same run.
#[derive(Clone)]
pub(crate) struct RunHandle {
    operator: Arc<str>,
    signals: Signals,
    end: watch::Receiver<Option<Arc<WorkEnd>>>,
    waiting: Arc<Mutex<RunWaiters>>,
}

/// The calls that currently wait for a run.
#[derive(Default)]
struct RunWaiters {
    calls: usize,
    /// Whether the call that started the run has given up, and no other call was given the run since.
    is_given_up: bool,
}

impl RunHandle {
    pub(crate) fn new(
        operator: Arc<str>,
        signals: Signals,
        end: watch::Receiver<Option<Arc<WorkEnd>>>,
    ) -> Self {
        Self { operator, signals, end, waiting: Arc::default() }
    }

    pub(crate) fn has_operator(&self, operator: &str) -> bool {
        *self.operator == *operator
    }

    /// Returns the end of the work on the run in this process; `None` while the run continues.
    pub(crate) fn current_end(&self) -> Option<Arc<WorkEnd>> {
        self.end.borrow().clone()
    }

    /// Returns whether the other is a clone of this one.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.waiting, &other.waiting)
    }

    /// Stops a run that was given up once no call waits for it. A call that joins it meanwhile waits for the lock.
    fn stop_if_given_up(&self, waiting: &RunWaiters) -> bool {
        let stops = waiting.is_given_up && waiting.calls == 0;
        if stops {
            self.signals.push(Signal::cancel());
        }
        stops
    }

    fn waiting(&self) -> MutexGuard<'_, RunWaiters> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that waits for a run.
pub(crate) struct RunCall {
    flight: RunHandle,
    /// Whether the call started the run.
    is_first: bool,
    waits: bool,
}

impl RunCall {
    /// Returns the call that started the run.
    pub(crate) fn first(flight: RunHandle) -> Self {
        Self::new(flight, true)
    }

    /// Returns a call that found the run.
    pub(crate) fn further(flight: RunHandle) -> Self {
        Self::new(flight, false)
    }

    fn new(flight: RunHandle, is_first: bool) -> Self {
        flight.waiting().calls += 1;
        Self { flight, is_first, waits: true }
    }

    /// Waits for the end of the run's work in this process: it has ended, has failed, or waits for a person.
    pub(crate) async fn end(&mut self) -> Arc<WorkEnd> {
        match self.flight.end.wait_for(Option::is_some).await.ok().and_then(|end| end.clone()) {
            Some(ended) => ended,
            // Its task was dropped with the server.
            None => {
                let shutdown = OrchError::Shutdown("the server has ended".into());
                Arc::new(WorkEnd::without_record(Err(shutdown), RecordState::Open))
            }
        }
    }

    /// Stops waiting because the client gave up the call. If the call that started the run gives up, the run is stopped
    /// once no other call waits for it; returns whether it is stopped.
    pub(crate) fn give_up(&mut self) -> bool {
        let mut waiting = self.flight.waiting();
        if std::mem::take(&mut self.waits) {
            waiting.calls -= 1;
        }
        waiting.is_given_up |= self.is_first;
        self.flight.stop_if_given_up(&waiting)
    }

    /// Stops waiting: the client gets the id of the running run, and may ask for it again.
    pub(crate) fn leave(mut self) {
        self.flight.waiting().is_given_up = false;
        self.stop_waiting();
    }

    fn stop_waiting(&mut self) {
        if std::mem::take(&mut self.waits) {
            let mut waiting = self.flight.waiting();
            waiting.calls -= 1;
            self.flight.stop_if_given_up(&waiting);
        }
    }
}

impl Drop for RunCall {
    fn drop(&mut self) {
        self.stop_waiting();
    }
}
