//! Answers that arrive after their call was given up.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use layer0::event::ToolLate;

/// Queue of late answers until the run records them; the run may be over.
#[derive(Default)]
pub(crate) struct Late(Mutex<LateQueue>);

#[derive(Default)]
struct LateQueue {
    answers: VecDeque<ToolLate>,
    reader: Option<Waker>,
}

impl Late {
    pub(super) fn push(&self, late: ToolLate) {
        let mut queue = self.queue();
        queue.answers.push_back(late);
        let reader = queue.reader.take();
        // An executor may poll the reader at once.
        drop(queue);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    pub(crate) fn poll_next(&self, context: &mut Context<'_>) -> Poll<ToolLate> {
        let mut queue = self.queue();
        match queue.answers.pop_front() {
            Some(late) => Poll::Ready(late),
            None => {
                queue.reader = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    fn queue(&self) -> MutexGuard<'_, LateQueue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
