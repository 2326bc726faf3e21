//! The history of a session before a run, along the chain of runs that follow each other.

use std::collections::BTreeSet;
use std::sync::Arc;

use backstop_event_log::{EventLog, LogError, RunSummary, read_events};
use layer0::event::Event;
use layer0::failure::Chain;
use layer0::id::{RunId, SessionId};
use layer0::message::Message;

use crate::record::fold::read_run_started;
use crate::record::run_transcript::RunTranscript;
use crate::record::transcript_cache::{CachedTranscript, TranscriptCache};

/// The most parts of one write: other writers of the store have their turn between two writes.
const MAX_KEPT_PARTS: usize = 64;

/// The history of a session until the end of a run.
#[derive(Default)]
pub(crate) struct Earlier {
    /// The messages, oldest first, without system messages.
    pub(crate) messages: Vec<Arc<Message>>,
    /// The stores of the runs' errors and results.
    pub(crate) sessions: Vec<SessionId>,
    /// The unreadable parts, for people.
    pub(crate) unreadable: Option<String>,
}

/// Reads a session up to the end of a run. It never fails on a record: unreadable parts, and everything before them,
/// are left out. With a cache, no record is read whose messages are in the cache or the log, and the log keeps the
/// messages that were read.
pub(crate) async fn history(
    log: &dyn EventLog,
    until: Option<&RunId>,
    cache: Option<&TranscriptCache>,
) -> Earlier {
    let kept = match cache {
        // A log that does not count its erasures, or cannot be read now, is read whole.
        Some(cache) => {
            log.erasures().await.ok().flatten().map(|erasures| KeptTranscripts { cache, erasures })
        }
        None => None,
    };
    let (runs, end) = read_back(log, until, kept).await;
    let mut history = Earlier::default();
    if let ChainEnd::Cached(earlier) = &end {
        history.messages.clone_from(&earlier.messages);
        history.sessions.clone_from(&earlier.sessions);
    }
    for run in runs.iter().rev() {
        history.messages.extend(run.messages.iter().cloned());
        for session in &run.sessions {
            if !history.sessions.contains(session) {
                history.sessions.push(session.clone());
            }
        }
    }
    if let Some(kept) = kept {
        kept.keep(log, &history, &runs, &end).await;
    }
    if let ChainEnd::Unreadable(error) = end {
        let error = Chain(&error);
        history.unreadable =
            Some(format!("earlier messages of the session cannot be read: {error}"));
    }
    history
}

/// Reads a run, the one that it follows, and so on, until one cannot be read.
pub(crate) async fn read_followed_runs(
    log: &dyn EventLog,
    last: Option<&RunId>,
) -> (Vec<(RunSummary, Vec<Event>)>, Option<LogError>) {
    let mut runs: Vec<(RunSummary, Vec<Event>)> = Vec::new();
    let mut next = last.cloned();
    while let Some(run) = next {
        if runs.iter().any(|(summary, _)| summary.run == run) {
            return (runs, Some(make_circle_error()));
        }
        match read_run(log, &run).await {
            Ok((follows, summary, events)) => {
                next = follows;
                runs.push((summary, events));
            }
            Err(error) => return (runs, Some(error)),
        }
    }
    (runs, None)
}

/// The messages that were kept before the last erasure, in memory and in the log.
#[derive(Clone, Copy)]
struct KeptTranscripts<'a> {
    cache: &'a TranscriptCache,
    /// The number of erasures in the log before anything was read.
    erasures: u64,
}

impl KeptTranscripts<'_> {
    /// Returns the cached transcript up to a run, unless a part was erased or changed since.
    async fn read_cached(self, log: &dyn EventLog, run: &RunId) -> Option<CachedTranscript> {
        if !self.cache.has(run, self.erasures) {
            return None;
        }
        let summary = log.summary(run).await.ok().flatten()?;
        self.cache.take(&summary, self.erasures)
    }

    /// Keeps the read transcripts.
    async fn keep(
        self,
        log: &dyn EventLog,
        history: &Earlier,
        runs: &[RunTranscript],
        end: &ChainEnd,
    ) {
        match (end, runs.first()) {
            (ChainEnd::Unreadable(_), _) | (ChainEnd::First, None) => {}
            (ChainEnd::Cached(whole), None) => self.cache.keep(whole.clone()),
            (_, Some(last)) => {
                let (messages, sessions) = (history.messages.clone(), history.sessions.clone());
                let transcript = CachedTranscript::new(
                    last.run.clone(),
                    last.head,
                    self.erasures,
                    messages,
                    sessions,
                );
                self.cache.keep(transcript);
            }
        }
        // A process that has the rest in memory reads each record once as it is.
        if matches!(end, ChainEnd::Cached(_)) {
            return;
        }
        let new: Vec<_> = runs.iter().filter(|run| run.is_new).collect();
        // The newest first: they are of use without the older ones.
        for runs in new.chunks(MAX_KEPT_PARTS) {
            let parts = runs.iter().filter_map(|run| run.write(log.key())).collect();
            if let Err(error) = log.keep_transcript(parts, self.erasures).await {
                tracing::debug!(%error, "the records of the session will be read again");
                return;
            }
        }
    }
}

/// The place where the runs of a session are read no further back.
enum ChainEnd {
    /// The cache has the rest.
    Cached(CachedTranscript),
    /// The first run of the session was read.
    First,
    Unreadable(LogError),
}

/// Reads a run, the one that it follows, and so on, newest first.
async fn read_back(
    log: &dyn EventLog,
    last: Option<&RunId>,
    kept: Option<KeptTranscripts<'_>>,
) -> (Vec<RunTranscript>, ChainEnd) {
    let mut chain = RunChain { next: last.cloned(), ..RunChain::default() };
    while let Some(run) = chain.next.clone() {
        if let Some(kept) = kept
            && let Some(cached) = kept.read_cached(log, &run).await
        {
            return (chain.runs, ChainEnd::Cached(cached));
        }
        if let Err(error) = chain.extend(log, &run, kept.is_some()).await {
            return (chain.runs, ChainEnd::Unreadable(error));
        }
    }
    (chain.runs, ChainEnd::First)
}

/// The runs of a session, newest first, as far as they were read.
#[derive(Default)]
struct RunChain {
    runs: Vec<RunTranscript>,
    seen: BTreeSet<RunId>,
    /// The run before them.
    next: Option<RunId>,
}

impl RunChain {
    /// Reads the next runs: those whose parts the log keeps, or one from its record.
    async fn extend(
        &mut self,
        log: &dyn EventLog,
        run: &RunId,
        reads_parts: bool,
    ) -> Result<(), LogError> {
        let before = self.runs.len();
        if reads_parts {
            // The record replaces kept parts that cannot be read.
            for part in log.transcript(run).await.unwrap_or_default() {
                let read = RunTranscript::read(part, log.key());
                match read.filter(|read| self.next.as_ref() == Some(&read.run)) {
                    Some(read) => self.push(read)?,
                    None => break,
                }
            }
        }
        if self.runs.len() > before {
            return Ok(());
        }
        let (follows, summary, events) = read_run(log, run).await?;
        self.push(RunTranscript::derive(&summary, &events, follows))
    }

    fn push(&mut self, run: RunTranscript) -> Result<(), LogError> {
        if !self.seen.insert(run.run.clone()) {
            return Err(make_circle_error());
        }
        self.next.clone_from(&run.follows);
        self.runs.push(run);
        Ok(())
    }
}

/// Reads the record of a run, with the run that it follows.
async fn read_run(
    log: &dyn EventLog,
    run: &RunId,
) -> Result<(Option<RunId>, RunSummary, Vec<Event>), LogError> {
    let (summary, events) = read_events(log, run).await?;
    let follows = read_run_started(&events)?.follows.as_ref().map(|follows| follows.run.clone());
    Ok((follows, summary, events))
}

fn make_circle_error() -> LogError {
    LogError::tampered_event(1, "the runs of its session go in circles")
}
