//! Calls that wait for a run.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use layer0::error::OrchError;
use layer0::operator::{Signal, Signals};
use tokio::sync::watch;

use crate::ended::{Ended, Standing};

/// A known run. Clones refer to the same run.
#[derive(Clone)]
pub(crate) struct Flight {
    operator: Arc<str>,
    signals: Signals,
    end: watch::Receiver<Option<Arc<Ended>>>,
    waiting: Arc<Mutex<Waiting>>,
}

/// The calls that currently wait for a run.
#[derive(Default)]
struct Waiting {
    calls: usize,
    /// Whether the call that started the run has given up, and no other call was given the run since.
    is_given_up: bool,
}

impl Flight {
    pub(crate) fn new(
        operator: Arc<str>,
        signals: Signals,
        end: watch::Receiver<Option<Arc<Ended>>>,
    ) -> Self {
        Self { operator, signals, end, waiting: Arc::default() }
    }

    pub(crate) fn is_of(&self, operator: &str) -> bool {
        *self.operator == *operator
    }

    /// Returns the end of the work on the run in this process; `None` while the run continues.
    pub(crate) fn current_end(&self) -> Option<Arc<Ended>> {
        self.end.borrow().clone()
    }

    /// Returns whether the other is a clone of this one.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.waiting, &other.waiting)
    }

    /// Stops a run that was given up once no call waits for it. A call that joins it meanwhile waits for the lock.
    fn stop_if_given_up(&self, waiting: &Waiting) -> bool {
        let stops = waiting.is_given_up && waiting.calls == 0;
        if stops {
            self.signals.push(Signal::cancel());
        }
        stops
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that waits for a run.
pub(crate) struct Call {
    flight: Flight,
    /// Whether the call started the run.
    is_first: bool,
    waits: bool,
}

impl Call {
    /// Returns the call that started the run.
    pub(crate) fn first(flight: Flight) -> Self {
        Self::new(flight, true)
    }

    /// Returns a call that found the run.
    pub(crate) fn further(flight: Flight) -> Self {
        Self::new(flight, false)
    }

    fn new(flight: Flight, is_first: bool) -> Self {
        flight.waiting().calls += 1;
        Self { flight, is_first, waits: true }
    }

    /// Waits for the end of the run's work in this process: it has ended, has failed, or waits for a person.
    pub(crate) async fn end(&mut self) -> Arc<Ended> {
        match self.flight.end.wait_for(Option::is_some).await.ok().and_then(|end| end.clone()) {
            Some(ended) => ended,
            // Its task was dropped with the server.
            None => {
                let shutdown = OrchError::Shutdown("the server has ended".into());
                Arc::new(Ended::without_record(Err(shutdown), Standing::Open))
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

impl Drop for Call {
    fn drop(&mut self) {
        self.stop_waiting();
    }
}
