//! Events of a stream that are only in the log.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use backstop_clock::Clock;
use backstop_event_log::{EventLog, LogError, Record};
use layer0::event::Event;
use layer0::id::RunId;

/// Maximum time for repetitions of a read that may succeed later: the same as for an append.
const PATIENCE: Duration = Duration::from_secs(5);
/// Delay before the first repetition of a read, and the maximum delay before a later one.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(1);

type ReadRecords = Pin<Box<dyn Future<Output = Result<Vec<Record>, LogError>> + Send>>;

/// A reader of the events that a stream skipped, in order and each of them once.
pub(super) struct LogReader {
    run: RunId,
    log: Option<Arc<dyn EventLog>>,
    clock: Arc<dyn Clock>,
    /// Seq of the first and of the last event still to be returned.
    wanted: Option<(u64, u64)>,
    /// Records that were read ahead with earlier ones.
    ahead: VecDeque<Record>,
    reading: Option<ReadRecords>,
    /// Whether the log was read from the first wanted event on.
    is_read: bool,
    /// Time for repetitions of the next read: none after a read that failed until the end.
    patience: Duration,
}

/// Events that could not be read.
pub(super) struct UnreadEvents {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) error: LogError,
}

impl LogReader {
    pub(super) fn new(run: RunId, log: Option<Arc<dyn EventLog>>, clock: Arc<dyn Clock>) -> Self {
        Self {
            run,
            log,
            clock,
            wanted: None,
            ahead: VecDeque::new(),
            reading: None,
            is_read: false,
            patience: PATIENCE,
        }
    }

    /// Requests events; all events of earlier requests were returned.
    pub(super) fn want(&mut self, from: u64, to: u64) {
        self.wanted = Some((from, to));
    }

    /// Returns the next wanted event; `None` if there is none.
    pub(super) fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Event, UnreadEvents>>> {
        loop {
            let Some((from, to)) = self.wanted else { return Poll::Ready(None) };
            while self.ahead.pop_front_if(|record| record.seq < from).is_some() {}
            if let Some(record) = self.ahead.pop_front_if(|record| record.seq == from) {
                self.advance(from, to);
                let event = record.decode(&self.run);
                return Poll::Ready(Some(event.map_err(|error| UnreadEvents {
                    from,
                    to: from,
                    error,
                })));
            }
            if std::mem::take(&mut self.is_read) {
                let next = self.ahead.front().map(|record| record.seq);
                let last = next.map_or(to, |next| to.min(next.saturating_sub(1)));
                self.advance(last, to);
                let error = LogError::tampered_event(from, "it is missing");
                return Poll::Ready(Some(Err(UnreadEvents { from, to: last, error })));
            }
            let Some(log) = &self.log else { return Poll::Ready(None) };
            let reading = self.reading.get_or_insert_with(|| {
                let (log, clock) = (Arc::clone(log), Arc::clone(&self.clock));
                Box::pin(read(log, clock, self.run.clone(), from, self.patience))
            });
            let result = ready!(reading.as_mut().poll(context));
            self.reading = None;
            match result {
                Ok(records) => {
                    self.ahead = records.into();
                    (self.is_read, self.patience) = (true, PATIENCE);
                }
                Err(error) => {
                    (self.wanted, self.patience) = (None, Duration::ZERO);
                    return Poll::Ready(Some(Err(UnreadEvents { from, to, error })));
                }
            }
        }
    }

    /// Removes the events up to `last` from the wanted ones.
    fn advance(&mut self, last: u64, to: u64) {
        self.is_read = false;
        self.wanted = (last < to).then_some((last.saturating_add(1), to));
        if self.ahead.is_empty() {
            self.ahead = VecDeque::new();
        }
    }
}

/// Reads the records of a run from `from` on, with repetitions while they may help.
async fn read(
    log: Arc<dyn EventLog>,
    clock: Arc<dyn Clock>,
    run: RunId,
    from: u64,
    patience: Duration,
) -> Result<Vec<Record>, LogError> {
    let (mut wait, mut waited) = (FIRST_WAIT, Duration::ZERO);
    loop {
        match log.records(&run, from).await {
            Err(error) if error.is_retryable() && waited < patience => {
                tracing::debug!(%run, %error, "a stream reads its log again");
                clock.sleep(wait).await;
                waited = waited.saturating_add(wait);
                wait = wait.saturating_mul(2).min(LONGEST_WAIT);
            }
            result => return result,
        }
    }
}
