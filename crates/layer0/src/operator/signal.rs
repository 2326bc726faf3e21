use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as TaskContext, Poll, Waker};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::event::Cause;

/// A message to a dispatch in flight.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Signal {
    /// The kind of signal: `cancel` stops an agent, `input` sends a message to its model; the operator defines any
    /// other name.
    pub name: String,
    /// The data of the signal.
    pub data: Value,
    /// The delivery to a behaviour that led to the signal, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Box<Cause>>,
}

impl Signal {
    /// The name of the signal that stops an operator.
    pub const CANCEL: &'static str = "cancel";

    /// Creates a signal.
    #[must_use]
    pub fn new(name: impl Into<String>, data: Value) -> Self {
        Self { name: name.into(), data, cause: None }
    }

    /// Creates the signal that stops an operator.
    #[must_use]
    pub fn cancel() -> Self {
        Self::new(Self::CANCEL, Value::Null)
    }
}

/// The pending signals of an operator; clones share one queue.
#[derive(Debug, Clone, Default)]
pub struct Signals(Arc<Mutex<SignalQueue>>);

#[derive(Debug, Default)]
struct SignalQueue {
    signals: VecDeque<Signal>,
    is_detached: bool,
    /// The tasks that wait for a signal: the operator, and the code that dispatches for it.
    readers: Vec<Waker>,
}

impl SignalQueue {
    fn wait(&mut self, context: &TaskContext<'_>) {
        if !self.readers.iter().any(|reader| reader.will_wake(context.waker())) {
            self.readers.push(context.waker().clone());
        }
    }
}

impl Signals {
    /// Appends a signal.
    pub fn push(&self, signal: Signal) {
        let mut queue = self.queue();
        queue.signals.push_back(signal);
        let readers = std::mem::take(&mut queue.readers);
        drop(queue);
        readers.into_iter().for_each(Waker::wake);
    }

    /// Returns the number of pending signals.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue().signals.len()
    }

    /// Removes and returns the oldest signal.
    #[must_use]
    pub fn take(&self) -> Option<Signal> {
        self.queue().signals.pop_front()
    }

    /// Returns whether a signal of this name is pending.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.queue().signals.iter().any(|signal| signal.name == name)
    }

    /// Removes and returns the oldest signal of this name.
    #[must_use]
    pub fn take_named(&self, name: &str) -> Option<Signal> {
        let mut queue = self.queue();
        let place = queue.signals.iter().position(|signal| signal.name == name)?;
        queue.signals.remove(place)
    }

    /// Declares that the dispatch is still needed although nothing in this process waits for it: the caller lost its
    /// store or its right to act, and another process resumes both. An orchestrator drops such a dispatch without
    /// cancelling it, and its record remains open.
    ///
    /// ```
    /// use layer0::operator::Signals;
    ///
    /// let signals = Signals::default();
    /// signals.detach();
    /// assert!(signals.is_detached());
    /// ```
    pub fn detach(&self) {
        self.queue().is_detached = true;
    }

    /// Returns whether the dispatch was [detached](Self::detach).
    #[must_use]
    pub fn is_detached(&self) -> bool {
        self.queue().is_detached
    }

    /// Removes the oldest signal, or wakes the task once there is one.
    pub fn poll_take(&self, context: &TaskContext<'_>) -> Poll<Signal> {
        let mut queue = self.queue();
        match queue.signals.pop_front() {
            Some(signal) => Poll::Ready(signal),
            None => {
                queue.wait(context);
                Poll::Pending
            }
        }
    }

    /// Waits for a signal of this name, which remains pending.
    pub fn poll_has(&self, name: &str, context: &TaskContext<'_>) -> Poll<()> {
        let mut queue = self.queue();
        if queue.signals.iter().any(|signal| signal.name == name) {
            return Poll::Ready(());
        }
        queue.wait(context);
        Poll::Pending
    }

    fn queue(&self) -> MutexGuard<'_, SignalQueue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
