//! The transcripts that the runs of an agent read last.
//!
//! A run of a session reads the messages of its earlier runs. All of them have ended, so a transcript that was read once
//! changes only by an erasure or a removal, which the log counts.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use backstop_event_log::RunSummary;
use layer0::event::Hash;
use layer0::id::{RunId, SessionId};
use layer0::message::{Image, Message};

/// The most transcripts that are kept.
const MAX_TRANSCRIPTS: usize = 16;
/// The most bytes of messages that are kept.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// The transcripts of sessions, each up to the end of one of its runs.
#[derive(Debug, Default)]
pub(crate) struct TranscriptCache(Mutex<VecDeque<CachedTranscript>>);

/// The messages of a session up to the end of a run.
#[derive(Debug, Clone)]
pub(crate) struct CachedTranscript {
    run: RunId,
    /// The hash of the run's last event.
    head: Hash,
    /// The number of erasures in the log before the transcript was read.
    erasures: u64,
    bytes: usize,
    pub(crate) messages: Vec<Arc<Message>>,
    pub(crate) sessions: Vec<SessionId>,
}

impl CachedTranscript {
    pub(crate) fn new(
        run: RunId,
        head: Hash,
        erasures: u64,
        messages: Vec<Arc<Message>>,
        sessions: Vec<SessionId>,
    ) -> Self {
        let bytes = messages.iter().map(|message| count_bytes(message)).sum();
        Self { run, head, erasures, bytes, messages, sessions }
    }
}

impl TranscriptCache {
    /// Returns whether a transcript up to this run is kept that was read before any later erasure.
    pub(crate) fn has(&self, run: &RunId, erasures: u64) -> bool {
        self.lock().iter().any(|it| it.run == *run && it.erasures == erasures)
    }

    /// Takes the transcript up to the end of a run, if the run still ends there. A longer one is to take its place.
    pub(crate) fn take(&self, last: &RunSummary, erasures: u64) -> Option<CachedTranscript> {
        let mut kept = self.lock();
        let place = kept.iter().position(|it| it.run == last.run)?;
        let found = kept.remove(place)?;
        (found.head == last.head && found.erasures == erasures).then_some(found)
    }

    /// Keeps a transcript, and drops the oldest ones beyond the limits.
    pub(crate) fn keep(&self, transcript: CachedTranscript) {
        let mut kept = self.lock();
        let erasures = transcript.erasures;
        kept.retain(|it| it.run != transcript.run && it.erasures == erasures);
        kept.push_back(transcript);
        let mut bytes: usize = kept.iter().map(|it| it.bytes).sum();
        while (kept.len() > MAX_TRANSCRIPTS || bytes > MAX_BYTES)
            && let Some(dropped) = kept.pop_front()
        {
            bytes -= dropped.bytes;
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<CachedTranscript>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns about how many bytes a message takes.
fn count_bytes(message: &Message) -> usize {
    let in_images = |images: &[Image]| images.iter().map(|image| image.data.len()).sum::<usize>();
    let texts = match message {
        Message::System { content } => content.len(),
        Message::User { content, images } => content.len() + in_images(images),
        Message::Assistant { content, tool_calls, provider_state } => {
            let calls = tool_calls.iter().map(|call| call.arguments.get().len()).sum::<usize>();
            let parts = provider_state.iter().flat_map(|state| state.parts.iter());
            content.len() + calls + parts.map(|part| part.data.get().len()).sum::<usize>()
        }
        Message::Tool { content, images, .. } => content.len() + in_images(images),
        _ => 0,
    };
    texts + size_of::<Message>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(run: &str) -> RunSummary {
        RunSummary::new(run.into())
    }

    fn transcript(run: &str, erasures: u64, bytes: usize) -> CachedTranscript {
        let message = Arc::new(Message::user("x".repeat(bytes)));
        let summary = summary(run);
        CachedTranscript::new(summary.run, summary.head, erasures, vec![message], Vec::new())
    }

    /// Spec: D9, S10
    #[test]
    fn transcript_holds_until_an_erasure() {
        let cache = TranscriptCache::default();
        cache.keep(transcript("run_1", 3, 1));
        assert!(cache.has(&"run_1".into(), 3) && !cache.has(&"run_1".into(), 4));
        assert!(cache.take(&summary("run_1"), 4).is_none());
        cache.keep(transcript("run_1", 4, 1));
        cache.keep(transcript("run_2", 5, 1));
        assert!(!cache.has(&"run_1".into(), 4), "the older text is not kept");
        let mut reopened = summary("run_2");
        reopened.head = Hash([7; 32]);
        assert!(cache.take(&reopened, 5).is_none());
    }

    #[test]
    fn transcripts_are_kept_within_limits() {
        let cache = TranscriptCache::default();
        for number in 0..=MAX_TRANSCRIPTS {
            cache.keep(transcript(&format!("run_{number}"), 0, 1));
        }
        assert!(!cache.has(&"run_0".into(), 0) && cache.has(&"run_1".into(), 0));
        cache.keep(transcript("large", 0, MAX_BYTES - 1_000));
        assert!(cache.has(&"large".into(), 0) && !cache.has(&"run_1".into(), 0));
        cache.keep(transcript("too_large", 0, MAX_BYTES));
        assert!(cache.lock().is_empty());
    }
}
