//! A run as a stream: its events and deltas, and how it ended as the last item.

mod print;
mod task;

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use backstop_event_log::{EventLog, LogError, Record};
use futures_util::Stream;
use layer0::event::{Event, EventKind};
use layer0::id::{RunId, SessionId};

use self::task::RunTask;
use crate::agent::Agent;
use crate::error::RunFailure;
use crate::feed::{Delta, Feed, Pending};
use crate::live::Piece;
use crate::outcome::RunOutcome;
use crate::request::RunRequest;
use crate::run::start::Start;

/// How many records are kept that were read beyond those that were wanted.
const MAX_READ_AHEAD: usize = 256;

/// What a [`RunStream`] is made of.
#[derive(Debug)]
#[non_exhaustive]
pub enum StreamItem {
    /// An event of the run, after it is durable; without a log, as it happened.
    Logged(Arc<Event>),
    /// A piece of an answer while it comes. It is never logged, and void when a `model.attempted`
    /// with a code for the same call and attempt follows. The pieces of an answer, put together,
    /// are its text.
    Delta {
        /// Which model call of the run.
        call: u32,
        /// Which attempt of the call.
        attempt: u32,
        /// The piece.
        piece: Piece,
    },
    /// The stream was read so late that these events are in the log alone, and the log could not be
    /// read. The run is not affected, and the events are in its record.
    Unread {
        /// The seq of the first of them.
        from: u64,
        /// The seq of the last of them.
        to: u64,
        /// How the log failed.
        error: LogError,
    },
    /// How the run ended, as [`Agent::run`] returns it. Nothing follows.
    Ended(Result<RunOutcome, RunFailure>),
}

/// A run of an agent as a stream; made by [`Agent::stream`].
///
/// It is a [`futures_util::Stream`], and has a [`next`](RunStream::next) of its own.
///
/// The run is a task of its own that never waits for its stream. Every event of the run is in the
/// stream, however late it is read: what does not fit in memory is read from the log. Deltas that
/// were not read yet are merged.
///
/// Dropping the stream stops the run where it is, as dropping the future of [`Agent::run`] does: its
/// tools are aborted, and its record ends with what was durable. To end it with a complete record,
/// cancel it with [`RunRequest::cancelled_by`] and read the stream to its end.
#[must_use = "dropping the stream stops the run"]
pub struct RunStream {
    run: RunId,
    session: SessionId,
    feed: Arc<Feed>,
    task: RunTask,
    log: Option<Arc<dyn EventLog>>,
    reading: Option<ReadingRecords>,
    /// What was read from the log beyond what was wanted.
    ahead: VecDeque<Record>,
    ready: VecDeque<StreamItem>,
    shown: ShownDeltas,
    has_ended: bool,
}

/// Events on their way from the log.
struct ReadingRecords {
    from: u64,
    to: u64,
    records: Pin<Box<dyn Future<Output = Result<Vec<Record>, LogError>> + Send>>,
}

/// How much of the current attempt's answer the reader has got.
#[derive(Debug, Clone, Copy, Default)]
struct ShownDeltas {
    attempt: u32,
    text_bytes: usize,
    thinking_bytes: usize,
}

impl Agent {
    /// Starts a run and returns it as a stream: its own events and deltas, then how it ended.
    ///
    /// ```
    /// use backstop_provider::ScriptedProvider;
    /// use backstop_react::{Agent, Piece, StreamItem};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let agent = Agent::builder(ScriptedProvider::saying(["It is 42."])).build()?;
    /// let mut stream = agent.stream("What is 40 + 2?");
    /// while let Some(item) = stream.next().await {
    ///     match item {
    ///         StreamItem::Delta { piece: Piece::Text(text), .. } => print!("{text}"),
    ///         StreamItem::Ended(result) => println!("\n{:?}", result?.stop),
    ///         _ => {}
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Where the agent asks for whole answers ([`AgentBuilder::stream`]), there are no deltas.
    ///
    /// The run starts at once, or when the stream is first read if this is called outside a Tokio
    /// runtime.
    ///
    /// [`AgentBuilder::stream`]: crate::AgentBuilder::stream
    pub fn stream(&self, request: impl Into<RunRequest>) -> RunStream {
        let log = self.inner.log.clone();
        let feed = Arc::new(Feed::new(log.is_some()));
        let start = Start::new(Arc::clone(&self.inner), request.into());
        let start = Box::new(start.feeding(Arc::clone(&feed)));
        let (run, session) = (start.run.clone(), start.session.clone());
        let task = RunTask::new(start, Arc::clone(&feed), &self.inner.clock);
        RunStream {
            run,
            session,
            feed,
            task,
            log,
            reading: None,
            ahead: VecDeque::new(),
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
                None => return Err(RunFailure::lost(self.run.clone(), self.session.clone())),
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
            if let Some(reading) = &mut self.reading {
                let result = ready!(reading.records.as_mut().poll(context));
                let (from, to) = (reading.from, reading.to);
                self.reading = None;
                match result {
                    Ok(records) => {
                        self.ahead = records.into();
                        self.take_ahead(from, to);
                        self.ahead.truncate(MAX_READ_AHEAD);
                        self.ahead.shrink_to_fit();
                    }
                    Err(error) => self.ready.push_back(StreamItem::Unread { from, to, error }),
                }
                continue;
            }
            match ready!(self.feed.poll_next(context)) {
                Pending::Event(event) => self.take_event(event),
                Pending::InLog { from, to } => self.read(from, to),
                Pending::Delta(delta) => self.take_delta(delta),
                Pending::Ended(result) => {
                    self.has_ended = true;
                    return Poll::Ready(Some(StreamItem::Ended(*result)));
                }
            }
        }
    }

    /// Reads events from the log, unless they were read with others before.
    fn read(&mut self, from: u64, to: u64) {
        while self.ahead.front().is_some_and(|record| record.seq < from) {
            self.ahead.pop_front();
        }
        let covers = self.ahead.front().is_some_and(|first| first.seq == from)
            && self.ahead.back().is_some_and(|last| last.seq >= to);
        if covers {
            return self.take_ahead(from, to);
        }
        self.ahead.clear();
        // Only a feed with a log says that events are there.
        let Some(log) = self.log.clone() else { return };
        let run = self.run.clone();
        let records = Box::pin(async move { log.records(&run, from).await });
        self.reading = Some(ReadingRecords { from, to, records });
    }

    /// Hands on what was read from the log.
    fn take_ahead(&mut self, from: u64, to: u64) {
        for seq in from..=to {
            let record = self.ahead.pop_front_if(|record| record.seq == seq);
            let missing = || Err(LogError::tampered(seq, "it is missing"));
            match record.map_or_else(missing, |record| record.decode(&self.run)) {
                Ok(event) => self.take_event(Arc::new(event)),
                Err(error) => {
                    return self.ready.push_back(StreamItem::Unread { from: seq, to, error });
                }
            }
        }
    }

    fn take_delta(&mut self, delta: Delta) {
        let Delta { call, attempt, is_thinking, text } = delta;
        if self.shown.attempt != attempt {
            self.shown = ShownDeltas { attempt, ..ShownDeltas::default() };
        }
        let piece = if is_thinking {
            self.shown.thinking_bytes += text.len();
            Piece::Thinking(text.into())
        } else {
            self.shown.text_bytes += text.len();
            Piece::Text(text.into())
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
                    let piece = Piece::Thinking(thinking.into());
                    self.ready.push_back(StreamItem::Delta { call, attempt, piece });
                }
                if !text.is_empty() {
                    let piece = Piece::Text(text.into());
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
