use std::sync::Arc;

use layer0::id::{CallId, ErrorId, RunId, SessionId};
use layer0::{Code, Timestamp};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::new_error::fingerprint;
use crate::summary::one_line;
use crate::{NewError, Origin, raw_json};

/// A stored error. Serialises as the lines of `backstop errors list --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ErrorRecord {
    id: ErrorId,
    tool: Arc<str>,
    call_id: CallId,
    reason: Code,
    code: Option<Arc<str>>,
    summary: String,
    #[serde(serialize_with = "as_json")]
    raw: Arc<str>,
    occurrences: u64,
    run: RunId,
    session: SessionId,
    at: Timestamp,
    #[serde(skip)]
    last_at: Timestamp,
    #[serde(skip)]
    chars_kept: u64,
}

impl NewError {
    /// Creates the record of an error that was seen for the first time.
    #[must_use]
    pub fn into_record(self, id: ErrorId) -> ErrorRecord {
        let (origin, reason, code, raw, summary, chars_kept) = self.into_parts();
        let Origin { at, session, run, call_id, tool } = origin;
        let (summary, last_at) = (summary.text, at);
        ErrorRecord {
            id,
            tool,
            call_id,
            reason,
            code,
            summary,
            raw,
            occurrences: 1,
            run,
            session,
            at,
            last_at,
            chars_kept,
        }
    }
}

impl ErrorRecord {
    /// Creates a record from a store's row. Text that is not JSON is wrapped, and a summary that is too long is cut, so
    /// that a row edited by hand does no harm.
    #[must_use]
    pub fn of_row(
        id: impl Into<ErrorId>,
        origin: Origin,
        reason: Code,
        code: Option<String>,
        summary: &str,
        raw: &str,
    ) -> Self {
        let raw = match serde_json::from_str::<&RawValue>(raw) {
            Ok(_) => raw.into(),
            Err(_) => raw_json(raw).into(),
        };
        let Origin { at, session, run, call_id, tool } = origin;
        Self {
            id: id.into(),
            tool,
            call_id,
            reason,
            code: code.map(Into::into),
            summary: one_line(summary),
            raw,
            occurrences: 1,
            run,
            session,
            at,
            last_at: at,
            chars_kept: 0,
        }
    }

    /// Sets the number of occurrences, the time of the last one, and the characters that its summary saves each time.
    #[must_use]
    pub const fn with_occurrences(
        mut self,
        occurrences: u64,
        last_at: Timestamp,
        chars_kept: u64,
    ) -> Self {
        self.occurrences = occurrences;
        self.last_at = last_at;
        self.chars_kept = chars_kept;
        self
    }

    pub(crate) fn see_again(&mut self, at: Timestamp) {
        self.occurrences += 1;
        self.last_at = self.last_at.max(at);
    }

    /// Returns its id.
    #[must_use]
    pub const fn id(&self) -> &ErrorId {
        &self.id
    }

    /// Returns the tool.
    #[must_use]
    pub const fn tool(&self) -> &Arc<str> {
        &self.tool
    }

    /// Returns the call of its first occurrence.
    #[must_use]
    pub const fn call_id(&self) -> &CallId {
        &self.call_id
    }

    /// Returns the code of the catalogue.
    #[must_use]
    pub const fn reason(&self) -> &Code {
        &self.reason
    }

    /// Returns the tool author's code.
    #[must_use]
    pub const fn code(&self) -> Option<&Arc<str>> {
        self.code.as_ref()
    }

    /// Returns the error's one-line summary, at most 100 characters.
    #[must_use]
    pub fn summary(&self) -> &str {
        &self.summary
    }

    /// Returns the whole error as JSON text.
    #[must_use]
    pub const fn raw(&self) -> &Arc<str> {
        &self.raw
    }

    /// Returns the number of occurrences in the session.
    #[must_use]
    pub const fn occurrences(&self) -> u64 {
        self.occurrences
    }

    /// Returns the run of its first occurrence.
    #[must_use]
    pub const fn run(&self) -> &RunId {
        &self.run
    }

    /// Returns the session.
    #[must_use]
    pub const fn session(&self) -> &SessionId {
        &self.session
    }

    /// Returns the time of its first occurrence.
    #[must_use]
    pub const fn at(&self) -> Timestamp {
        self.at
    }

    /// Returns the time of its last occurrence.
    #[must_use]
    pub const fn last_at(&self) -> Timestamp {
        self.last_at
    }

    /// Returns the number of characters that the summary saves the model each time.
    #[must_use]
    pub const fn chars_kept(&self) -> u64 {
        self.chars_kept
    }

    /// Returns the value of [`NewError::fingerprint`] when it was stored.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let code = self.code.as_deref().unwrap_or_default();
        fingerprint([&*self.tool, self.reason.as_str(), code, &self.raw])
    }
}

fn as_json<S: Serializer>(raw: &str, serializer: S) -> Result<S::Ok, S::Error> {
    // All constructors ensure valid JSON.
    match serde_json::from_str::<&RawValue>(raw) {
        Ok(json) => json.serialize(serializer),
        Err(_) => serializer.serialize_str(raw),
    }
}
