//! The queue of a run's events and deltas until its stream is read: bounded, and never blocking the run.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use layer0::event::Event;

use crate::error::RunFailure;
use crate::live::LivePiece;
use crate::outcome::RunOutcome;

/// Maximum number of unread events in memory, if a log has them too.
const MAX_EVENTS: usize = 256;
/// Maximum number of bytes of unread deltas.
const MAX_DELTA_BYTES: usize = 256 * 1024;
/// Cost of a delta in addition to its text, in bytes.
const DELTA_COST: usize = 64;

pub(crate) type RunResult = Result<RunOutcome, RunFailure>;

/// An item that waits for the reader.
#[derive(Debug)]
pub(crate) enum Pending {
    Event(Arc<Event>),
    /// These events are only in the log.
    InLog {
        from: u64,
        to: u64,
    },
    Delta(MergedDelta),
    Ended(Box<RunResult>),
}

/// Consecutive pieces of one attempt's text or thinking, merged.
#[derive(Debug)]
pub(crate) struct MergedDelta {
    pub(crate) call: u32,
    pub(crate) attempt: u32,
    pub(crate) is_thinking: bool,
    pub(crate) text: String,
}

/// The queue between a run and its stream. The run never waits for the reader.
///
/// With a log, the queue holds at most [`MAX_EVENTS`] events, and only the range of further ones, which are in the log;
/// without a log it holds all events. Deltas are merged, and left out if there are too many: the reader takes their
/// text from the event with the whole answer.
#[derive(Debug)]
pub(crate) struct StreamFeed {
    has_log: bool,
    queue: Mutex<FeedQueue>,
}

#[derive(Debug, Default)]
struct FeedQueue {
    pending: VecDeque<Pending>,
    /// Number of pending events.
    events: usize,
    /// Cost of the pending deltas, in bytes.
    delta_bytes: usize,
    /// The attempt whose deltas are left out from now on, because one of them was.
    cut: Option<(u32, u32)>,
    /// The calls whose deltas were left out.
    cut_calls: BTreeSet<u32>,
    has_ended: bool,
    reader: Option<Waker>,
}

impl StreamFeed {
    pub(crate) fn new(has_log: bool) -> Self {
        Self { has_log, queue: Mutex::default() }
    }

    /// Adds the next event of the run.
    pub(crate) fn event(&self, event: &Arc<Event>) {
        let mut queue = self.queue();
        if !self.has_log || queue.events < MAX_EVENTS {
            queue.events += 1;
            queue.pending.push_back(Pending::Event(Arc::clone(event)));
        } else if let Some(Pending::InLog { to, .. }) = queue.pending.back_mut() {
            *to = event.seq;
        } else {
            queue.pending.push_back(Pending::InLog { from: event.seq, to: event.seq });
        }
        wake(queue);
    }

    /// Adds a piece of an answer.
    pub(crate) fn delta(&self, call: u32, attempt: u32, piece: &LivePiece) {
        let (is_thinking, piece) = match piece {
            LivePiece::Text(text) => (false, text),
            LivePiece::Thinking(text) => (true, text),
        };
        let mut queue = self.queue();
        if queue.cut == Some((call, attempt)) {
            return;
        }
        let left = MAX_DELTA_BYTES.saturating_sub(queue.delta_bytes);
        let cost = match queue.pending.back_mut() {
            Some(Pending::Delta(last))
                if (last.call, last.attempt, last.is_thinking) == (call, attempt, is_thinking) =>
            {
                if piece.len() <= left {
                    last.text.push_str(piece);
                }
                piece.len()
            }
            _ => {
                if piece.len() + DELTA_COST <= left {
                    let text = piece.to_string();
                    let delta = MergedDelta { call, attempt, is_thinking, text };
                    queue.pending.push_back(Pending::Delta(delta));
                }
                piece.len() + DELTA_COST
            }
        };
        if cost > left {
            queue.cut = Some((call, attempt));
            queue.cut_calls.insert(call);
            return;
        }
        queue.delta_bytes += cost;
        wake(queue);
    }

    /// Adds the end of the run; only the first one counts.
    pub(crate) fn end(&self, result: RunResult) {
        let mut queue = self.queue();
        if !queue.has_ended {
            queue.has_ended = true;
            queue.pending.push_back(Pending::Ended(Box::new(result)));
            wake(queue);
        }
    }

    /// Takes the next item. It must not be called after the end.
    pub(crate) fn poll_next(&self, context: &Context<'_>) -> Poll<Pending> {
        let mut queue = self.queue();
        let Some(next) = queue.pending.pop_front() else {
            queue.reader = Some(context.waker().clone());
            return Poll::Pending;
        };
        match &next {
            Pending::Event(_) => queue.events -= 1,
            Pending::Delta(delta) => queue.delta_bytes -= delta.text.len() + DELTA_COST,
            Pending::InLog { .. } | Pending::Ended(_) => {}
        }
        Poll::Ready(next)
    }

    /// Returns whether deltas of this call were left out. Called once, when the call is over.
    pub(crate) fn was_cut(&self, call: u32) -> bool {
        self.queue().cut_calls.remove(&call)
    }

    fn queue(&self) -> MutexGuard<'_, FeedQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes the reader, after releasing the queue: an executor may poll the reader at once.
fn wake(mut queue: MutexGuard<'_, FeedQueue>) {
    let reader = queue.reader.take();
    drop(queue);
    if let Some(reader) = reader {
        reader.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::task::Wake;

    use super::*;

    fn taken(feed: &StreamFeed) -> Vec<Pending> {
        let context = Context::from_waker(Waker::noop());
        let next = || match feed.poll_next(&context) {
            Poll::Ready(next) => Some(next),
            Poll::Pending => None,
        };
        std::iter::from_fn(next).collect()
    }

    /// Polls its feed when it is woken, as an executor may.
    struct Polls(Arc<StreamFeed>, Mutex<Vec<Pending>>);

    impl Wake for Polls {
        fn wake(self: Arc<Self>) {
            self.1.lock().unwrap().extend(taken(&self.0));
        }
    }

    /// Spec: D14
    #[test]
    fn reader_may_poll_while_it_is_woken() {
        let feed = Arc::new(StreamFeed::new(true));
        let polls = Arc::new(Polls(Arc::clone(&feed), Mutex::default()));
        let waker = Waker::from(Arc::clone(&polls));
        assert!(feed.poll_next(&Context::from_waker(&waker)).is_pending());
        feed.delta(1, 1, &text("a"));
        assert_eq!(polls.1.lock().unwrap().len(), 1);
    }

    fn text(text: &str) -> LivePiece {
        LivePiece::Text(text.into())
    }

    /// Spec: D14
    #[test]
    fn deltas_of_one_attempt_are_merged() {
        let feed = StreamFeed::new(true);
        feed.delta(1, 1, &text("a"));
        feed.delta(1, 1, &text("b"));
        feed.delta(1, 1, &LivePiece::Thinking("hm".into()));
        feed.delta(1, 2, &LivePiece::Thinking("oh".into()));
        let texts: Vec<String> = taken(&feed)
            .into_iter()
            .map(|pending| match pending {
                Pending::Delta(delta) => delta.text,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(texts, ["ab", "hm", "oh"]);
    }

    /// Spec: D14, V1
    #[test]
    fn unread_deltas_take_bounded_memory() {
        let feed = StreamFeed::new(true);
        let piece = text(&"x".repeat(1_000));
        for call in 1..=100 {
            for _ in 0..100 {
                feed.delta(call, 1, &piece);
            }
        }
        assert!(feed.queue().delta_bytes <= MAX_DELTA_BYTES);
        assert!(feed.was_cut(3) && feed.was_cut(100) && !feed.was_cut(1));
        let bytes: usize = taken(&feed)
            .iter()
            .map(|pending| match pending {
                Pending::Delta(delta) => delta.text.len(),
                _ => 0,
            })
            .sum();
        assert!((200_000..=MAX_DELTA_BYTES).contains(&bytes), "{bytes}");
        assert_eq!(feed.queue().delta_bytes, 0);
        // An attempt with a missing delta has no hole in the middle.
        feed.delta(100, 1, &piece);
        assert!(taken(&feed).is_empty());
        feed.delta(100, 2, &piece);
        assert_eq!(taken(&feed).len(), 1);
    }
}
