//! The messages that one run adds to its session, and their text in the log.

use std::sync::Arc;

use backstop_event_log::{LogKey, RunSummary, TranscriptPart, readable_sessions};
use backstop_react_machine::collect_messages;
use layer0::event::{Event, Hash};
use layer0::id::{RunId, SessionId};
use layer0::message::Message;
use serde::{Deserialize, Serialize};

/// The version of the text. A part of another version is derived from the record again.
const VERSION: u32 = 1;

/// The messages that one run adds to its session.
pub(super) struct RunTranscript {
    pub(super) run: RunId,
    pub(super) head: Hash,
    /// The run before it.
    pub(super) follows: Option<RunId>,
    /// The messages, oldest first, without what only instructs.
    pub(super) messages: Vec<Arc<Message>>,
    /// The sessions in which what the run stored is found.
    pub(super) sessions: Vec<SessionId>,
    /// Whether it is derived from the record and can be kept: the run is over.
    pub(super) is_new: bool,
}

/// The text of a kept part.
#[derive(Serialize)]
struct WrittenText<'a> {
    version: u32,
    messages: &'a [Arc<Message>],
    sessions: &'a [SessionId],
}

/// The text of a kept part, as it is read.
#[derive(Deserialize)]
struct StoredText {
    version: u32,
    messages: Vec<Message>,
    sessions: Vec<SessionId>,
}

impl RunTranscript {
    /// Derives it from the record of a run.
    pub(super) fn derive(summary: &RunSummary, events: &[Event], follows: Option<RunId>) -> Self {
        Self {
            run: summary.run.clone(),
            head: summary.head,
            follows,
            messages: collect_messages(events.iter().map(|event| &event.kind)),
            sessions: readable_sessions(events),
            is_new: !summary.is_open(),
        }
    }

    /// Reads a kept part; `None` for one that was changed, or is of another version.
    pub(super) fn read(part: TranscriptPart, key: Option<&LogKey>) -> Option<Self> {
        let sound = part.is_sound(key);
        let text: StoredText = serde_json::from_str(&part.text).ok().filter(|_| sound)?;
        let messages = text.messages.into_iter().map(Arc::new).collect();
        (text.version == VERSION).then_some(Self {
            run: part.run,
            head: part.head,
            follows: part.follows,
            messages,
            sessions: text.sessions,
            is_new: false,
        })
    }

    /// Returns the part for the log to keep; `None` for one that it has, or of an open run.
    pub(super) fn write(&self, key: Option<&LogKey>) -> Option<TranscriptPart> {
        let text =
            WrittenText { version: VERSION, messages: &self.messages, sessions: &self.sessions };
        let text = serde_json::to_string(&text).ok().filter(|_| self.is_new)?;
        let (run, follows) = (self.run.clone(), self.follows.clone());
        Some(TranscriptPart::new(run, self.head, follows, text, key))
    }
}
