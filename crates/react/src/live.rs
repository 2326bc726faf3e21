//! Live events for subscribers, never blocking a run.

use std::sync::{Arc, OnceLock};

use layer0::event::Event;
use layer0::id::RunId;
use tokio::sync::broadcast;

/// Maximum number of messages that a slow subscriber may lag behind before it misses some.
const CAPACITY: usize = 256;

/// A message to a subscriber.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Live {
    /// An event, after it is durable.
    Logged(Arc<Event>),
    /// A piece of an answer while it arrives, without the secrets of the process: text that may begin a secret is held
    /// back until that is clear. Pieces are never logged. They are void if a `model.attempted` with a code for the same
    /// call and attempt follows.
    Delta {
        /// The run.
        run: RunId,
        /// Number of the model call in the run.
        call: u32,
        /// Number of the attempt of the call.
        attempt: u32,
        /// The piece.
        piece: LivePiece,
    },
    /// The subscriber was too slow and missed this many messages.
    Missed(u64),
}

/// A piece of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LivePiece {
    /// A piece of the text.
    Text(Arc<str>),
    /// A piece of the thinking.
    Thinking(Arc<str>),
}

/// The sending side. The channel is created for the first subscriber, so that an agent without subscribers costs
/// nothing.
#[derive(Debug, Default)]
pub(crate) struct Hub(OnceLock<broadcast::Sender<Live>>);

impl Hub {
    pub(crate) fn subscribe(&self) -> Subscriber {
        Subscriber(self.0.get_or_init(|| broadcast::Sender::new(CAPACITY)).subscribe())
    }

    /// Returns whether there are subscribers.
    pub(crate) fn is_heard(&self) -> bool {
        self.0.get().is_some_and(|sender| sender.receiver_count() > 0)
    }

    /// Sends the result of `live`, which is not called without subscribers.
    pub(crate) fn send(&self, live: impl FnOnce() -> Live) {
        if let Some(sender) = self.0.get().filter(|_| self.is_heard()) {
            // The last subscriber may leave in between, which is no failure.
            let _ = sender.send(live());
        }
    }
}

/// A lossy receiver of the live events of all runs of an agent: a slow subscriber misses messages. For every event of
/// one run, and its end, use [`Agent::stream`](crate::Agent::stream).
#[derive(Debug)]
pub struct Subscriber(broadcast::Receiver<Live>);

impl Subscriber {
    /// Waits for the next message; `None` once the agent is gone.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no message.
    pub async fn next(&mut self) -> Option<Live> {
        match self.0.recv().await {
            Ok(live) => Some(live),
            Err(broadcast::error::RecvError::Lagged(count)) => Some(Live::Missed(count)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}
