//! Requests of running steps to their run.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::sync::oneshot;

use crate::journal::{StepReply, StepRequest};

/// Queue of requests until the run takes them; the run may be over.
#[derive(Default)]
pub(crate) struct Asks(Mutex<AskQueue>);

#[derive(Default)]
struct AskQueue {
    asked: VecDeque<(StepRequest, oneshot::Sender<StepReply>)>,
    reader: Option<Waker>,
    /// Number of requested dispatches.
    dispatches: u64,
    /// Whether the run is over.
    is_closed: bool,
    is_detached: bool,
}

impl Asks {
    /// Sends a request to the run and returns its answer; `None` if the run is over.
    pub(crate) async fn ask(&self, ask: StepRequest) -> Option<StepReply> {
        self.push(ask).await.ok()
    }

    /// Sends a request without an answer to the run.
    pub(crate) fn tell(&self, ask: StepRequest) {
        drop(self.push(ask));
    }

    /// Returns the number of the next dispatch; the dispatch can be given up by its number.
    pub(crate) fn number_dispatch(&self) -> u64 {
        let mut queue = self.queue();
        queue.dispatches += 1;
        queue.dispatches
    }

    fn push(&self, ask: StepRequest) -> oneshot::Receiver<StepReply> {
        let (told, answer) = oneshot::channel();
        let mut queue = self.queue();
        if queue.is_closed {
            // The step sees from the dropped sender that the run is over.
            return answer;
        }
        queue.asked.push_back((ask, told));
        let reader = queue.reader.take();
        // An executor may poll the reader at once.
        drop(queue);
        if let Some(reader) = reader {
            reader.wake();
        }
        answer
    }

    pub(crate) fn poll_next(
        &self,
        context: &Context<'_>,
    ) -> Poll<(StepRequest, oneshot::Sender<StepReply>)> {
        let mut queue = self.queue();
        while let Some((ask, told)) = queue.asked.pop_front() {
            // A question or dispatch that no call waits for any more is dropped.
            if !(matches!(ask, StepRequest::Person(_) | StepRequest::Dispatch(_))
                && told.is_closed())
            {
                return Poll::Ready((ask, told));
            }
        }
        queue.reader = Some(context.waker().clone());
        Poll::Pending
    }

    /// Marks the run as stopped without an end, because its process lost the store or the right to act: another process
    /// resumes it, with its child runs.
    pub(crate) fn detach(&self) {
        self.queue().is_detached = true;
    }

    /// Returns whether the run stopped without an end.
    pub(crate) fn is_detached(&self) -> bool {
        self.queue().is_detached
    }

    /// Closes the queue: steps that wait, or ask later, learn that the run is over.
    pub(crate) fn close(&self) {
        let mut queue = self.queue();
        queue.is_closed = true;
        queue.asked.clear();
    }

    fn queue(&self) -> MutexGuard<'_, AskQueue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
