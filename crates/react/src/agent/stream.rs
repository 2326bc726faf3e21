//! A run as a stream: its events and deltas, with its result as the last item.

mod log_reader;
mod print;
mod task;

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use backstop_event_log::LogError;
use futures_util::Stream;
use layer0::event::{Event, EventKind};
use layer0::id::{RunId, SessionId};

use self::log_reader::{LogReader, UnreadEvents};
use self::task::RunTask;
use crate::agent::Agent;
use crate::error::RunFailure;
use crate::feed::{MergedDelta, Pending, StreamFeed};
use crate::live::LivePiece;
use crate::outcome::RunOutcome;
use crate::request::RunRequest;
use crate::run::start::StartingRun;

/// An item of a [`RunStream`].
#[derive(Debug)]
#[non_exhaustive]
pub enum StreamItem {
    /// An event of the run, after it is durable; without a log, as it happened.
    Logged(Arc<Event>),
    /// A piece of an answer while it arrives. Pieces are never logged. They are void if a `model.attempted` with a code
    /// for the same call and attempt follows. The pieces of an answer, put together, are its text.
    Delta {
        /// Number of the model call in the run.
        call: u32,
        /// Number of the attempt of the call.
        attempt: u32,
        /// The piece.
        piece: LivePiece,
    },
    /// Events that the stream read too late to have them in memory, and that could not be read from the log: the log
    /// failed, or stayed locked for 5 seconds. The run is not affected, and the events are in its record.
    Unread {
        /// The seq of the first of them.
        from: u64,
        /// The seq of the last of them.
        to: u64,
        /// The error of the log.
        error: LogError,
    },
    /// The result of the run, as [`Agent::run`] returns it. It is the last item.
    Ended(Result<RunOutcome, RunFailure>),
}

/// A run of an agent as a stream; made by [`Agent::stream`].
///
/// It is a [`futures_util::Stream`], and also has its own [`next`](RunStream::next).
///
/// The run is a separate task that never waits for its stream. Every event of the run is in the stream, however late it
/// is read: events that do not fit in memory are read from the log. Unread deltas are merged.
///
/// Dropping the stream stops the run where it is, as dropping the future of [`Agent::run`] does: its tools are aborted,
/// and its record ends with the last durable event. To end it with a complete record, cancel it with
/// [`RunRequest::cancelled_by`] and read the stream to its end.
#[must_use = "dropping the stream stops the run"]
pub struct RunStream {
    run: RunId,
    session: SessionId,
    feed: Arc<StreamFeed>,
    task: RunTask,
    log_reader: LogReader,
    ready: VecDeque<StreamItem>,
    shown: ShownDeltas,
    has_ended: bool,
}

/// The part of the current attempt's answer that the reader has received.
#[derive(Debug, Clone, Copy, Default)]
struct ShownDeltas {
    attempt: u32,
    text_bytes: usize,
    thinking_bytes: usize,
}

impl Agent {
    /// Starts a run and returns it as a stream: its events and deltas, then its result.
    ///
    /// ```
    /// use backstop_provider::ScriptedProvider;
    /// use backstop_react::{Agent, LivePiece, StreamItem};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let agent = Agent::builder(ScriptedProvider::saying(["It is 42."])).build()?;
    /// let mut stream = agent.stream("What is 40 + 2?");
    /// while let Some(item) = stream.next().await {
    ///     match item {
    ///         StreamItem::Delta { piece: LivePiece::Text(text), .. } => print!("{text}"),
    ///         StreamItem::Ended(result) => println!("\n{:?}", result?.stop),
    ///         _ => {}
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// If the agent asks for whole answers ([`AgentBuilder::stream`]), there are no deltas.
    ///
    /// The run starts at once, or when the stream is first read if this is called outside a Tokio
    /// runtime.
    ///
    /// [`AgentBuilder::stream`]: crate::AgentBuilder::stream
    pub fn stream(&self, request: impl Into<RunRequest>) -> RunStream {
        let log = self.inner.log.clone();
        let feed = Arc::new(StreamFeed::new(log.is_some()));
        let start = StartingRun::new(Arc::clone(&self.inner), request.into());
        let start = Box::new(start.feeding(Arc::clone(&feed)));
        let (run, session) = (start.run.clone(), start.session.clone());
        let clock = &self.inner.clock;
        let task = RunTask::new(start, Arc::clone(&feed), clock);
        let log_reader = LogReader::new(run.clone(), log, Arc::clone(clock));
        RunStream {
            run,
            session,
            feed,
            task,
            log_reader,
            ready: VecDeque::new(),
            shown: ShownDeltas::default(),
            has_ended: false,
        }
    }
}

impl RunStream {
    /// Returns the run's id, under which its record is kept.
    #[must_use]
    pub const fn run_id(&self) -> &RunId {
        &self.run
    }

    /// Returns the session of the run.
    #[must_use]
    pub const fn session(&self) -> &SessionId {
        &self.session
    }

    /// Waits for the next item; `None` after [`StreamItem::Ended`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no item.
    pub async fn next(&mut self) -> Option<StreamItem> {
        std::future::poll_fn(|context| self.poll_item(context)).await
    }

    /// Waits for the end of the run, and skips everything before it.
    ///
    /// # Errors
    ///
    /// As [`Agent::run`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the stream, and stops the run.
    pub async fn finish(mut self) -> Result<RunOutcome, RunFailure> {
        loop {
            match self.next().await {
                Some(StreamItem::Ended(result)) => return result,
                Some(_) => {}
                None => {
                    return Err(RunFailure::from_lost_task(self.run.clone(), self.session.clone()));
                }
            }
        }
    }

    fn poll_item(&mut self, context: &mut Context<'_>) -> Poll<Option<StreamItem>> {
        self.task.ensure_started();
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Poll::Ready(Some(item));
            }
            if self.has_ended {
                return Poll::Ready(None);
            }
            match ready!(self.log_reader.poll_next(context)) {
                Some(Ok(event)) => {
                    self.take_event(Arc::new(event));
                    continue;
                }
                Some(Err(UnreadEvents { from, to, error })) => {
                    return Poll::Ready(Some(StreamItem::Unread { from, to, error }));
                }
                None => {}
            }
            match ready!(self.feed.poll_next(context)) {
                Pending::Event(event) => self.take_event(event),
                Pending::InLog { from, to } => self.log_reader.want(from, to),
                Pending::Delta(delta) => self.take_delta(delta),
                Pending::Ended(result) => {
                    self.has_ended = true;
                    return Poll::Ready(Some(StreamItem::Ended(*result)));
                }
            }
        }
    }

    fn take_delta(&mut self, delta: MergedDelta) {
        let MergedDelta { call, attempt, is_thinking, text } = delta;
        if self.shown.attempt != attempt {
            self.shown = ShownDeltas { attempt, ..ShownDeltas::default() };
        }
        let piece = if is_thinking {
            self.shown.thinking_bytes += text.len();
            LivePiece::Thinking(text.into())
        } else {
            self.shown.text_bytes += text.len();
            LivePiece::Text(text.into())
        };
        self.ready.push_back(StreamItem::Delta { call, attempt, piece });
    }

    fn take_event(&mut self, event: Arc<Event>) {
        match &event.kind {
            EventKind::ModelRequested(_) => self.shown = ShownDeltas::default(),
            EventKind::ModelAttempted(attempted)
                if attempted.code.is_some() || self.shown.attempt != attempted.attempt =>
            {
                self.shown = ShownDeltas { attempt: attempted.attempt, ..ShownDeltas::default() };
            }
            EventKind::ModelResponded(responded) if self.feed.was_cut(responded.call) => {
                let (call, attempt) = (responded.call, self.shown.attempt);
                let thinking = responded.thinking.as_deref().unwrap_or_default();
                let thinking = thinking.get(self.shown.thinking_bytes..).unwrap_or_default();
                let text = responded.text.get(self.shown.text_bytes..).unwrap_or_default();
                if !thinking.is_empty() {
                    let piece = LivePiece::Thinking(thinking.into());
                    self.ready.push_back(StreamItem::Delta { call, attempt, piece });
                }
                if !text.is_empty() {
                    let piece = LivePiece::Text(text.into());
                    self.ready.push_back(StreamItem::Delta { call, attempt, piece });
                }
            }
            _ => {}
        }
        self.ready.push_back(StreamItem::Logged(event));
    }
}

impl Stream for RunStream {
    type Item = StreamItem;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<StreamItem>> {
        self.poll_item(context)
    }
}

impl fmt::Debug for RunStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunStream").field("run", &self.run).finish_non_exhaustive()
    }
}
