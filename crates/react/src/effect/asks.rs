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

    fn push(&self, ask: Ask) -> oneshot::Receiver<Told> {
        let (told, answer) = oneshot::channel();
        let mut queue = self.queue();
        queue.asked.push_back((ask, told));
        if let Some(reader) = queue.reader.take() {
            reader.wake();
        }
        answer
    }

    pub(crate) fn poll_next(&self, context: &Context<'_>) -> Poll<(Ask, oneshot::Sender<Told>)> {
        let mut queue = self.queue();
        while let Some((ask, told)) = queue.asked.pop_front() {
            // A person is not asked what no call waits for any more.
            if !(matches!(ask, Ask::Person(_)) && told.is_closed()) {
                return Poll::Ready((ask, told));
            }
        }
        queue.reader = Some(context.waker().clone());
        Poll::Pending
    }

    /// Answers no step any more.
    pub(crate) fn close(&self) {
        self.queue().asked.clear();
    }

    fn queue(&self) -> MutexGuard<'_, AskQueue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
