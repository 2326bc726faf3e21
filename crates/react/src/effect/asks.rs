//! What steps ask of their run while they are at work.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::sync::oneshot;

use crate::journal::{Ask, Told};

/// Keeps what was asked until the run takes it; the run may be over.
#[derive(Default)]
pub(crate) struct Asks(Mutex<AskQueue>);

#[derive(Default)]
struct AskQueue {
    asked: VecDeque<(Ask, oneshot::Sender<Told>)>,
    reader: Option<Waker>,
    /// The number of requested dispatches.
    dispatches: u64,
    /// Is the run over?
    is_closed: bool,
    is_detached: bool,
}

impl Asks {
    /// Asks the run. `None` when it is over.
    pub(crate) async fn ask(&self, ask: Ask) -> Option<Told> {
        self.push(ask).await.ok()
    }

    /// Tells the run something that has no answer.
    pub(crate) fn tell(&self, ask: Ask) {
        drop(self.push(ask));
    }

    /// Returns the number of the next dispatch, by which it can be given up.
    pub(crate) fn number_dispatch(&self) -> u64 {
        let mut queue = self.queue();
        queue.dispatches += 1;
        queue.dispatches
    }

    fn push(&self, ask: Ask) -> oneshot::Receiver<Told> {
        let (told, answer) = oneshot::channel();
        let mut queue = self.queue();
        if queue.is_closed {
            // The sender is dropped, which says that the run is over.
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

    pub(crate) fn poll_next(&self, context: &Context<'_>) -> Poll<(Ask, oneshot::Sender<Told>)> {
        let mut queue = self.queue();
        while let Some((ask, told)) = queue.asked.pop_front() {
            // Neither is a person asked nor an operator started that no call waits for any more.
            if !(matches!(ask, Ask::Person(_) | Ask::Dispatch(_)) && told.is_closed()) {
                return Poll::Ready((ask, told));
            }
        }
        queue.reader = Some(context.waker().clone());
        Poll::Pending
    }

    /// States that the run stops short of an end, since its process lost the store or the right to act: another one
    /// resumes it, with its runs below.
    pub(crate) fn detach(&self) {
        self.queue().is_detached = true;
    }

    /// Returns whether the run stops short of an end.
    pub(crate) fn is_detached(&self) -> bool {
        self.queue().is_detached
    }

    /// Answers no step any more: those that wait learn that the run is over, and so do those that ask later.
    pub(crate) fn close(&self) {
        let mut queue = self.queue();
        queue.is_closed = true;
        queue.asked.clear();
    }

    fn queue(&self) -> MutexGuard<'_, AskQueue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
