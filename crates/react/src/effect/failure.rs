//! Events and model texts for the error of a tool.

use std::borrow::Cow;
use std::sync::Arc;

use backstop_error_store::{
    ErrorStore, NewError, Origin, StoreError, StoredError, Summary, fallback_text, readable,
    stored_text,
};
use backstop_redact::Redactor;
use backstop_tool::{ToolError, failed_text};
use layer0::event::{ErrorStoreDegraded, ErrorStored, EventKind, ToolFailure, ToolResponded};
use layer0::failure::{Chain, Failure};
use layer0::id::{CallId, RunId, SessionId};
use layer0::{Code, Timestamp, code, text};
use serde_json::json;
use tracing::Instrument;

use crate::agent::inner::AgentInner;
use crate::hook::HookContext;

/// Maximum number of characters of an author's code.
const MAX_CODE_CHARS: usize = 100;
/// Maximum number of characters of an interruption's cause.
const MAX_CAUSE_CHARS: usize = 500;
/// Maximum number of characters of a note.
const MAX_NOTE_CHARS: usize = 500;

/// A failed call, with everything its events need.
pub(crate) struct Failing<'a> {
    run: &'a RunId,
    session: &'a SessionId,
    call_id: &'a CallId,
    tool: &'a Arc<str>,
    redactor: &'a Redactor,
    at: Timestamp,
    duration_ms: u64,
    may_have_acted: bool,
}

impl<'a> Failing<'a> {
    pub(crate) fn new(
        agent: &'a AgentInner,
        context: &'a HookContext,
        call_id: &'a CallId,
        tool: &'a Arc<str>,
        duration_ms: u64,
    ) -> Self {
        let HookContext { run, session } = context;
        let at = agent.clock.now(); // time of day: it is recorded.
        let (redactor, may_have_acted) = (&agent.redactor, false);
        Self { run, session, call_id, tool, redactor, at, duration_ms, may_have_acted }
    }

    /// Sets whether a stopped call may have acted.
    pub(crate) const fn may_have_acted(mut self, may_have_acted: bool) -> Self {
        self.may_have_acted = may_have_acted;
        self
    }

    /// Returns the event of a failure whose text is bounded and complete, but for the error's note. For an interruption, it includes the known
    /// cause, such as the way a server died.
    pub(crate) fn respond(&self, error: &ToolError, text: &str) -> EventKind {
        let text = self.redactor.redact(text);
        let message = text.lines().next().unwrap_or_default();
        let message = match (error.kind(), error.output()) {
            (ToolError::Interrupted, Some(cause)) => {
                Cow::Owned(format!("{message}: {}", shorten_to_line(&self.redactor.redact(cause))))
            }
            _ => Cow::Borrowed(message),
        };
        let shown = self.with_note(error, text.to_string());
        self.build_tool_responded(error, &shown, &message, None)
    }

    /// Records a failure from the tool's own code: the whole text in the store, one line for the model. Without a
    /// store, or if it fails, the model reads the beginning of the text.
    pub(crate) async fn store_and_respond(
        &self,
        error: &ToolError,
        store: Option<&dyn ErrorStore>,
    ) -> Vec<EventKind> {
        let author_code = self.author_code(error);
        let new = NewError::new(
            self.origin(),
            Code::new(error.code()),
            author_code.as_deref(),
            &raw_text(error, self.redactor),
            self.redactor,
        );
        let degraded = match store {
            None => self.build_degraded("store", code::STORE_CLOSED, "there is no error store"),
            Some(store) => match store_once_more_if_locked(store, new.clone()).await {
                Ok(stored) => return self.build_stored_events(error, &new, &stored),
                Err(failed) => {
                    let why = Chain(&failed).to_string();
                    tracing::warn!(code = failed.code(), error = why, "error store failed");
                    self.build_degraded("store", failed.code(), &why)
                }
            },
        };
        let text = match error.kind() {
            // These have bounded texts of their own.
            ToolError::Cancelled => self.stopped_text().to_owned(),
            ToolError::Panicked(_) | ToolError::Timeout { .. } => {
                self.redactor.redact(&failed_text(self.tool, error)).into_owned()
            }
            ToolError::Environment(_) => self.environment_text(error),
            _ => fallback_text(&readable(new.raw()), author_code.as_deref()),
        };
        let text = self.with_note(error, text);
        vec![
            degraded,
            self.build_tool_responded(error, &text, &self.message(error, new.summary()), None),
        ]
    }

    /// Returns the event of a failed operation of the error store.
    pub(crate) fn build_degraded(
        &self,
        operation: &str,
        code: &'static str,
        why: &str,
    ) -> EventKind {
        ErrorStoreDegraded::new(operation, code, self.redactor.redact(why)).into()
    }

    pub(super) const fn call_id(&self) -> &CallId {
        self.call_id
    }

    /// Returns the call that failed.
    pub(crate) fn origin(&self) -> Origin {
        let tool = Arc::clone(self.tool);
        Origin::new(self.at, self.session.clone(), self.run.clone(), self.call_id.clone(), tool)
    }

    fn build_stored_events(
        &self,
        error: &ToolError,
        new: &NewError,
        stored: &StoredError,
    ) -> Vec<EventKind> {
        let summary = new.summary();
        let text =
            self.with_note(error, stored_text(&self.headline(error, summary), summary, stored));
        tracing::info!(error_id = %stored.id, tool_name = %self.tool, "error_stored");
        let (id, call_id, tool) = (stored.id.clone(), self.call_id.clone(), Arc::clone(self.tool));
        let mut event = ErrorStored::new(id, call_id, tool, stored.occurrences, new.chars_kept());
        event.code = new.code().cloned();
        let message = self.message(error, summary);
        vec![event.into(), self.build_tool_responded(error, &text, &message, Some(stored))]
    }

    /// Returns the text for the model with the error's note in brackets below it.
    fn with_note(&self, error: &ToolError, text: String) -> String {
        let Some(note) = error.note() else { return text };
        let note = self.redactor.redact(note);
        let shown: String = note.chars().take(MAX_NOTE_CHARS).collect();
        let shown = shown.replace('\n', " ");
        match note.chars().count() {
            all if all > MAX_NOTE_CHARS => {
                format!("{text}\n[{shown}... (cut: {MAX_NOTE_CHARS} of {all} characters shown)]")
            }
            _ => format!("{text}\n[{shown}]"),
        }
    }

    /// Returns the text of a wall that held, which is bounded and states what is granted.
    fn environment_text(&self, error: &ToolError) -> String {
        self.redactor.redact(&failed_text(self.tool, error)).into_owned()
    }

    /// Returns the message of a failure in the record.
    fn message<'t>(&self, error: &ToolError, summary: &'t Summary) -> Cow<'t, str> {
        match error.kind() {
            ToolError::Cancelled => Cow::Borrowed(self.stopped_text()),
            ToolError::Environment(_) => {
                let text = self.environment_text(error);
                Cow::Owned(text.lines().next().unwrap_or_default().to_owned())
            }
            _ => Cow::Borrowed(&summary.text),
        }
    }

    /// Returns the text of a call that was stopped with its run.
    const fn stopped_text(&self) -> &'static str {
        match self.may_have_acted {
            true => text::MAY_HAVE_ACTED,
            false => text::CANCELLED,
        }
    }

    /// Returns the author's code, redacted and cut: it is text from outside like the rest of the error.
    fn author_code(&self, error: &ToolError) -> Option<Arc<str>> {
        let code = error.author_code()?;
        // Redacted before it is cut: a secret could otherwise be cut in half.
        let redacted = self.redactor.redact(code);
        Some(match (redacted.char_indices().nth(MAX_CODE_CHARS), &redacted) {
            (Some((end, _)), _) => redacted[..end].into(),
            (None, Cow::Borrowed(_)) => Arc::clone(code),
            (None, Cow::Owned(redacted)) => redacted.as_str().into(),
        })
    }

    fn headline(&self, error: &ToolError, summary: &Summary) -> String {
        let tool = self.tool;
        match error.kind() {
            ToolError::Cancelled => self.stopped_text().to_owned(),
            ToolError::Environment(_) => self.environment_text(error),
            ToolError::Timeout { .. } => failed_text(tool, error),
            ToolError::Panicked(_) => {
                failed_text(tool, &ToolError::Panicked(summary.text.to_string()))
            }
            _ if summary.text.is_empty() => format!("Tool '{tool}' failed without a message"),
            _ => format!("Tool '{tool}' failed: {}", summary.text),
        }
    }

    fn build_tool_responded(
        &self,
        error: &ToolError,
        text: &str,
        message: &str,
        stored: Option<&StoredError>,
    ) -> EventKind {
        let mut failure = ToolFailure::new(error.code(), message);
        failure.code = self.author_code(error);
        failure.error_id = stored.map(|stored| stored.id.clone());
        let (call_id, tool) = (self.call_id.clone(), Arc::clone(self.tool));
        ToolResponded::failure(call_id, tool, text, self.duration_ms, failure).into()
    }
}

/// Returns whether an error comes from the tool's own code, whose text may be long, or holds the output of a stopped
/// tool.
pub(crate) fn is_stored(error: &ToolError) -> bool {
    if matches!(error.kind(), ToolError::Cancelled | ToolError::Environment(_)) {
        return error.output().is_some();
    }
    matches!(
        error.kind(),
        ToolError::Caused(_)
            | ToolError::ExecutionFailed(_)
            | ToolError::InvalidOutput(_)
            | ToolError::Other(_)
            | ToolError::Panicked(_)
            | ToolError::Timeout { .. }
    )
}

/// Returns the full text of an error, with the tool's output if there is any.
fn raw_text(error: &ToolError, redactor: &Redactor) -> String {
    let text = match error.kind() {
        ToolError::Caused(cause) => Chain(&**cause).to_string(),
        ToolError::Environment(error) => format!("{}: {}", error.code(), error.what()),
        ToolError::ExecutionFailed(text) | ToolError::Panicked(text) => text.clone(),
        kind => Chain(kind).to_string(),
    };
    match error.output() {
        // Redacted before it becomes a JSON string: a secret could otherwise run into the escape that follows it.
        Some(output) => {
            json!({"message": redactor.redact(&text), "output": redactor.redact(output)})
                .to_string()
        }
        None => text,
    }
}

/// Returns the beginning of a text in one line.
fn shorten_to_line(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join(" / ").chars().take(MAX_CAUSE_CHARS).collect()
}

pub(super) async fn store_once_more_if_locked(
    store: &dyn ErrorStore,
    error: NewError,
) -> Result<StoredError, StoreError> {
    let span = tracing::info_span!("error_store.store", tool = %error.origin().tool);
    async {
        match store.store(error.clone()).await {
            Err(StoreError::Locked(_)) => store.store(error).await,
            result => result,
        }
    }
    .instrument(span)
    .await
}
