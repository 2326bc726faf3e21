//! Earlier messages from the caller.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use layer0::code;
use layer0::failure::{Effect, Facts, Failure};
use layer0::id::{CallId, RunId, SessionId};
use layer0::message::{Message, Transcript};
use layer0::name::SessionNameError;
use thiserror::Error;

use crate::label::LabelError;

/// The conversation before a run, given by the caller; see [`RunRequest::history`].
///
/// It consists of messages, oldest first, or of the transcript of an earlier run. System messages of a transcript are
/// left out: the instructions are those of the agent that continues.
///
/// [`RunRequest::history`]: crate::RunRequest::history
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    messages: Transcript,
    /// Whether the messages come from a run. A speaker may have several messages in a row then.
    is_of_run: bool,
}

/// The error of a request that cannot be run. The caller has to fix it; nothing was started.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The session already has a run, so its messages are known.
    ///
    /// Retry: never. Effect: none.
    #[error("session `{session}` has a history already, up to run `{follows}`")]
    #[non_exhaustive]
    HistoryInSession {
        /// The session.
        session: SessionId,
        /// The last run of the session.
        follows: RunId,
    },
    /// No model could continue from these messages.
    ///
    /// Retry: never. Effect: none.
    #[error("message {index} of the history cannot stand there: {why}")]
    #[non_exhaustive]
    InvalidHistory {
        /// The message, counted from 0.
        index: usize,
        /// The fault of the message.
        why: HistoryFault,
    },
    /// A label of the request is invalid.
    ///
    /// Retry: never. Effect: none.
    #[error("a label cannot be given")]
    Label(#[from] LabelError),
    /// The session name is invalid.
    ///
    /// Retry: never. Effect: none.
    #[error("the session cannot be named so")]
    Session(#[from] SessionNameError),
    /// The run would be deeper than the agent's budget allows.
    ///
    /// Retry: never. Effect: none.
    #[error("the run would be {depth} levels deep, {max} are allowed")]
    #[non_exhaustive]
    TooDeep {
        /// Number of dispatches that would be above the run.
        depth: u32,
        /// Maximum number of dispatches.
        max: u32,
    },
    /// A tool needs an approval, but the agent has neither a log, in which approvals are decided, nor an approver.
    ///
    /// Retry: never. Effect: none.
    #[error(
        "tool `{tool}` needs an approval, which nobody can give: the agent has no log and no approver"
    )]
    #[non_exhaustive]
    ApprovalWithoutLog {
        /// The tool.
        tool: Arc<str>,
    },
    /// The agent keeps no log, so the session is unknown.
    ///
    /// Retry: never. Effect: none.
    #[error("session `{session}` cannot be gone on with: the agent has no log")]
    #[non_exhaustive]
    SessionWithoutLog {
        /// The session.
        session: SessionId,
    },
}

/// The fault of a message in a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HistoryFault {
    /// The message is empty.
    ///
    /// Retry: never. Effect: none.
    #[error("it is empty")]
    Empty,
    /// The first message is not the user's.
    ///
    /// Retry: never. Effect: none.
    #[error("a history begins with a user message")]
    NotBegunByUser,
    /// The previous message is by the same speaker.
    ///
    /// Retry: never. Effect: none.
    #[error("the one before is by the same speaker")]
    SameSpeaker,
    /// The message is a system message.
    ///
    /// Retry: never. Effect: none.
    #[error("instructions are the agent's")]
    System,
    /// Two calls of the message have the same id.
    ///
    /// Retry: never. Effect: none.
    #[error("two of its calls have the same id")]
    RepeatedCall,
    /// A tool answers a call that was not made just before, or answers it twice.
    ///
    /// Retry: never. Effect: none.
    #[error("it answers no call of the turn before it")]
    UnknownCall,
    /// Earlier calls are not answered before the message.
    ///
    /// Retry: never. Effect: none.
    #[error("a call before it has no answer")]
    UnansweredCall,
    /// The last message is the user's, and so is the run's input.
    ///
    /// Retry: never. Effect: none.
    #[error("it is the user's, and the input of the run follows it")]
    UserAtTheEnd,
}

impl Failure for HistoryFault {
    fn facts(&self) -> Facts {
        match self {
            Self::Empty
            | Self::NotBegunByUser
            | Self::SameSpeaker
            | Self::System
            | Self::RepeatedCall
            | Self::UnknownCall
            | Self::UnansweredCall
            | Self::UserAtTheEnd => Facts::never(code::INPUT_INVALID, Effect::None),
        }
    }
}

impl RequestError {
    pub(crate) const fn approval_without_log(tool: Arc<str>) -> Self {
        Self::ApprovalWithoutLog { tool }
    }

    pub(crate) const fn session_without_log(session: SessionId) -> Self {
        Self::SessionWithoutLog { session }
    }

    pub(crate) const fn history_in_session(session: SessionId, follows: RunId) -> Self {
        Self::HistoryInSession { session, follows }
    }

    /// Returns advice for fixing the request.
    #[must_use]
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::HistoryInSession { .. } => {
                "give no history: the session is read from the log; or take a fresh session"
            }
            Self::InvalidHistory { why, .. } => match why {
                HistoryFault::Empty => "leave empty messages out",
                HistoryFault::NotBegunByUser => "begin with what the user said",
                HistoryFault::SameSpeaker => "join what one speaker said in a row",
                HistoryFault::System => "give instructions to the agent, with `instructions`",
                HistoryFault::RepeatedCall => "give each call of a message an id of its own",
                HistoryFault::UnknownCall | HistoryFault::UnansweredCall => {
                    "answer every call once, right after the message that asks for it"
                }
                HistoryFault::UserAtTheEnd => {
                    "take the last message out, and run the agent with it"
                }
            },
            Self::Label(_) => "use fewer or shorter labels; long texts belong into the input",
            Self::Session(_) => "give it a short name, such as the number of a ticket",
            Self::TooDeep { .. } => "raise `max_depth`, or look for agents that call themselves",
            Self::ApprovalWithoutLog { .. } => {
                "give the agent a log (`log(MemoryLog::new())`, or a database's), or an approver"
            }
            Self::SessionWithoutLog { .. } => {
                "give the agent a log (`log(MemoryLog::new())`, or a database's), or give the \
                 conversation with `RunRequest::history`"
            }
        }
    }
}

impl Failure for RequestError {
    fn facts(&self) -> Facts {
        match self {
            Self::HistoryInSession { .. }
            | Self::InvalidHistory { .. }
            | Self::Label(_)
            | Self::Session(_)
            | Self::SessionWithoutLog { .. } => Facts::never(code::INPUT_INVALID, Effect::None),
            Self::ApprovalWithoutLog { .. } => Facts::never(code::CONFIG_INVALID, Effect::None),
            Self::TooDeep { .. } => Facts::never(code::ORCH_DEPTH, Effect::None),
        }
    }

    fn hint(&self) -> Option<Cow<'_, str>> {
        Some(self.hint().into())
    }
}

impl History {
    /// Returns the messages, oldest first.
    #[must_use]
    pub const fn messages(&self) -> &Transcript {
        &self.messages
    }

    /// Returns the sessions whose stored errors and results the messages may refer to.
    #[must_use]
    pub fn sessions(&self) -> &[SessionId] {
        self.messages.sessions()
    }

    /// Sets the sessions whose stored errors and results the messages may refer to; the run reads them there. The
    /// transcript of a run has them already.
    #[must_use]
    pub fn with_sessions(mut self, sessions: impl Into<Arc<[SessionId]>>) -> Self {
        self.messages = self.messages.with_sessions(sessions);
        self
    }

    /// Checks that a model can continue from it: it begins with a user message, every call is answered right after the
    /// message that requests it, and no message is empty or a system message. Speakers alternate, and the last message
    /// is not the user's, unless it is the transcript of a run.
    ///
    /// # Errors
    ///
    /// [`RequestError::InvalidHistory`].
    pub fn check(&self) -> Result<(), RequestError> {
        let mut open = BTreeSet::new();
        let mut before = None;
        let messages = self.messages.messages();
        for (index, message) in messages.iter().enumerate() {
            let fault = |why| RequestError::InvalidHistory { index, why };
            self.take(before, message, &mut open).map_err(fault)?;
            before = Some(&**message);
        }
        let fault = |why| {
            let index = messages.len().saturating_sub(1);
            Err(RequestError::InvalidHistory { index, why })
        };
        match before {
            _ if !open.is_empty() => fault(HistoryFault::UnansweredCall),
            Some(Message::User { .. }) if !self.is_of_run => fault(HistoryFault::UserAtTheEnd),
            _ => Ok(()),
        }
    }

    /// Checks the message after `before`, and updates the open calls.
    fn take(
        &self,
        before: Option<&Message>,
        message: &Message,
        open: &mut BTreeSet<CallId>,
    ) -> Result<(), HistoryFault> {
        if let Message::Tool { tool_call_id, .. } = message {
            return match open.remove(tool_call_id) {
                true => Ok(()),
                false => Err(HistoryFault::UnknownCall),
            };
        }
        if !open.is_empty() {
            return Err(HistoryFault::UnansweredCall);
        }
        let same_speaker = match (before, message) {
            (None, Message::Assistant { .. }) => return Err(HistoryFault::NotBegunByUser),
            (Some(Message::User { .. }), Message::User { .. })
            | (Some(Message::Assistant { .. }), Message::Assistant { .. }) => true,
            _ => false,
        };
        if same_speaker && !self.is_of_run {
            return Err(HistoryFault::SameSpeaker);
        }
        match message {
            Message::System { .. } => Err(HistoryFault::System),
            Message::User { content, images } if content.trim().is_empty() && images.is_empty() => {
                Err(HistoryFault::Empty)
            }
            Message::Assistant { content, tool_calls, provider_state } => {
                if content.trim().is_empty() && tool_calls.is_empty() && provider_state.is_none() {
                    return Err(HistoryFault::Empty);
                }
                open.extend(tool_calls.iter().map(|call| call.id.clone()));
                match open.len() == tool_calls.len() {
                    true => Ok(()),
                    false => Err(HistoryFault::RepeatedCall),
                }
            }
            _ => Ok(()),
        }
    }
}

impl From<Transcript> for History {
    fn from(transcript: Transcript) -> Self {
        Self::from(&transcript)
    }
}

impl From<&Transcript> for History {
    fn from(transcript: &Transcript) -> Self {
        let said = |message: &&Arc<Message>| !matches!(***message, Message::System { .. });
        let mut messages = Transcript::default().with_sessions(transcript.sessions());
        transcript
            .messages()
            .iter()
            .filter(said)
            .for_each(|message| messages.push_shared(Arc::clone(message)));
        Self { messages, is_of_run: true }
    }
}

impl<M: Into<Arc<Message>>> FromIterator<M> for History {
    fn from_iter<I: IntoIterator<Item = M>>(given: I) -> Self {
        let mut messages = Transcript::default();
        given.into_iter().for_each(|message| messages.push_shared(message.into()));
        Self { messages, is_of_run: false }
    }
}

impl<M: Into<Arc<Message>>> From<Vec<M>> for History {
    fn from(messages: Vec<M>) -> Self {
        messages.into_iter().collect()
    }
}

impl<M: Into<Arc<Message>>, const N: usize> From<[M; N]> for History {
    fn from(messages: [M; N]) -> Self {
        messages.into_iter().collect()
    }
}

impl From<&[Message]> for History {
    fn from(messages: &[Message]) -> Self {
        messages.iter().cloned().collect()
    }
}

impl From<&[Arc<Message>]> for History {
    fn from(messages: &[Arc<Message>]) -> Self {
        messages.iter().cloned().collect()
    }
}
