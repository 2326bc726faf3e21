//! What was said in a session before a run, along the runs that each one follows.

use std::sync::Arc;

use backstop_event_log::{EventLog, LogError, RunSummary, read_events, sessions_of};
use backstop_react_machine::messages_of;
use layer0::event::Event;
use layer0::failure::Chain;
use layer0::id::{RunId, SessionId};
use layer0::message::Message;

use crate::record::fold::started;
use crate::record::transcript_cache::{CachedTranscript, TranscriptCache};

/// What a session came to until the end of a run.
#[derive(Default)]
pub(crate) struct Earlier {
    /// The messages, oldest first, without what only instructs.
    pub(crate) messages: Vec<Arc<Message>>,
    /// Where what its runs stored is found.
    pub(crate) sessions: Vec<SessionId>,
    /// What could not be read, for people.
    pub(crate) unreadable: Option<String>,
}

/// Reads a session up to the end of a run. It is never refused: what cannot be read, and what stands
/// before it, is left out. A part that the cache has is not read again.
pub(crate) async fn history(
    log: &dyn EventLog,
    until: Option<&RunId>,
    cache: Option<&TranscriptCache>,
) -> Earlier {
    let cache = match cache {
        // A log that does not count its erasures, or cannot be read now, is read whole.
        Some(cache) => log.erasures().await.ok().flatten().map(|erasures| (cache, erasures)),
        None => None,
    };
    let (runs, end) = read_back(log, until, cache).await;
    let mut history = Earlier::default();
    if let ChainEnd::Cached(earlier) = &end {
        history.messages.clone_from(&earlier.messages);
        history.sessions.clone_from(&earlier.sessions);
    }
    for (_, events) in runs.iter().rev() {
        history.messages.extend(messages_of(events.iter().map(|event| &event.kind)));
        for session in sessions_of(events) {
            if !history.sessions.contains(&session) {
                history.sessions.push(session);
            }
        }
    }
    match (end, cache, runs.first()) {
        (ChainEnd::Unreadable(error), ..) => {
            let error = Chain(&error);
            let what = format!("earlier messages of the session cannot be read: {error}");
            history.unreadable = Some(what);
        }
        (_, Some((cache, erasures)), Some((last, _))) => {
            let (messages, sessions) = (history.messages.clone(), history.sessions.clone());
            cache.keep(CachedTranscript::new(last, erasures, messages, sessions));
        }
        (ChainEnd::Cached(whole), Some((cache, _)), None) => cache.keep(whole),
        _ => {}
    }
    history
}

/// Reads a run, the one that it follows, and so on, until one cannot be read.
pub(crate) async fn followed(
    log: &dyn EventLog,
    last: Option<&RunId>,
) -> (Vec<(RunSummary, Vec<Event>)>, Option<LogError>) {
    let (runs, end) = read_back(log, last, None).await;
    match end {
        ChainEnd::Unreadable(error) => (runs, Some(error)),
        ChainEnd::First | ChainEnd::Cached(_) => (runs, None),
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
    cache: Option<(&TranscriptCache, u64)>,
) -> (Vec<(RunSummary, Vec<Event>)>, ChainEnd) {
    let mut runs: Vec<(RunSummary, Vec<Event>)> = Vec::new();
    let mut next = last.cloned();
    while let Some(run) = next {
        if let Some(cached) = read_cached(log, &run, cache).await {
            return (runs, ChainEnd::Cached(cached));
        }
        if runs.iter().any(|(summary, _)| summary.run == run) {
            let circle = LogError::tampered(1, "the runs of its session go in circles");
            return (runs, ChainEnd::Unreadable(circle));
        }
        let read = match read_events(log, &run).await {
            Ok((summary, events)) => started(&events)
                .map(|started| started.follows.as_ref().map(|follows| follows.run.clone()))
                .map(|follows| (follows, (summary, events))),
            Err(error) => Err(error),
        };
        match read {
            Ok((follows, read)) => {
                next = follows;
                runs.push(read);
            }
            Err(error) => return (runs, ChainEnd::Unreadable(error)),
        }
    }
    (runs, ChainEnd::First)
}

/// Returns the cached transcript up to a run, unless a part was erased or changed since.
async fn read_cached(
    log: &dyn EventLog,
    run: &RunId,
    cache: Option<(&TranscriptCache, u64)>,
) -> Option<CachedTranscript> {
    let (cache, erasures) = cache.filter(|(cache, erasures)| cache.has(run, *erasures))?;
    let summary = log.summary(run).await.ok().flatten()?;
    cache.take(&summary, erasures)
}
