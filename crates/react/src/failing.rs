//! From a tool's error to what the log records and the model reads.

use std::borrow::Cow;
use std::sync::Arc;

use error_store::{
    ErrorStore, NewError, StoreError, Stored, Summary, fallback_text, raw_json, stored_text,
};
use layer0::event::{ErrorStoreDegraded, ErrorStored, EventKind, ToolFailure, ToolResponded};
use layer0::failure::{Chain, Failure};
use layer0::id::{CallId, RunId, SessionId};
use layer0::{Code, Timestamp, code};
use redact::Redactor;
use serde_json::json;
use tool::{ToolError, failed_text};
use tracing::Instrument;

/// How many characters of an author's code are kept.
const MAX_CODE_CHARS: usize = 100;

/// Everything a failure needs to be recorded.
pub(crate) struct Failing<'a> {
    pub(crate) run: &'a RunId,
    pub(crate) session: &'a SessionId,
    pub(crate) call_id: &'a CallId,
    pub(crate) tool: &'a Arc<str>,
    pub(crate) redactor: &'a Redactor,
    pub(crate) at: Timestamp,
    pub(crate) duration_ms: u64,
}

impl Failing<'_> {
    /// Records a failure whose text is bounded and says all.
    pub(crate) fn respond(&self, error: &ToolError, text: &str) -> EventKind {
        let text = self.redactor.redact(text);
        self.responded(error, &text, text.lines().next().unwrap_or_default(), None)
    }

    /// Records a failure of the tool's own: whole in the store, one line for the model. Without a
    /// store, or when it fails, the model reads the head.
    pub(crate) async fn store_and_respond(
        &self,
        error: &ToolError,
        store: Option<&dyn ErrorStore>,
    ) -> Vec<EventKind> {
        let raw = raw_text(error);
        let raw = self.redactor.redact(&raw);
        let author_code = self.author_code(error);
        let summary = Summary::of(&raw, author_code.as_deref());
        let new = NewError {
            at: self.at,
            session: self.session.clone(),
            run: self.run.clone(),
            call_id: self.call_id.clone(),
            tool: Arc::clone(self.tool),
            reason: Code::new(error.code()),
            code: author_code.clone(),
            raw: raw_json(&raw),
            summary: summary.text.clone(),
        };
        let degraded = match store {
            None => self.degraded("store", code::STORE_CLOSED, "there is no error store"),
            Some(store) => match store_once_more_if_locked(store, new).await {
                Ok(stored) => return self.stored(error, &raw, &summary, author_code, &stored),
                Err(failed) => {
                    let why = Chain(&failed).to_string();
                    tracing::warn!(code = failed.code(), error = why, "error store failed");
                    self.degraded("store", failed.code(), &why)
                }
            },
        };
        let text = match error.kind() {
            // These have sentences of their own, which are bounded.
            ToolError::Panicked(_) | ToolError::Timeout { .. } => {
                self.redactor.redact(&failed_text(self.tool, error)).into_owned()
            }
            _ => fallback_text(&raw, author_code.as_deref()),
        };
        vec![degraded, self.responded(error, &text, &summary.text, None)]
    }

    /// Says that the error store could not do its work.
    pub(crate) fn degraded(&self, operation: &str, code: &'static str, why: &str) -> EventKind {
        ErrorStoreDegraded {
            operation: operation.into(),
            reason: Code::new(code),
            message: self.redactor.redact(why).into(),
        }
        .into()
    }

    fn stored(
        &self,
        error: &ToolError,
        raw: &str,
        summary: &Summary,
        author_code: Option<Arc<str>>,
        stored: &Stored,
    ) -> Vec<EventKind> {
        let text = stored_text(&self.headline(error, summary), summary, stored);
        tracing::info!(error_id = %stored.id, tool_name = %self.tool, "error_stored");
        let shown = if summary.cut { summary.own_chars } else { usize::MAX };
        let event = ErrorStored {
            error_id: stored.id.clone(),
            call_id: self.call_id.clone(),
            tool: Arc::clone(self.tool),
            code: author_code,
            occurrences: stored.occurrences,
            chars_kept: u64::try_from(raw.chars().count().saturating_sub(shown))
                .unwrap_or(u64::MAX),
        };
        vec![event.into(), self.responded(error, &text, &summary.text, Some(stored))]
    }

    /// Returns the author's code, which is somebody else's text like the rest of the error.
    fn author_code(&self, error: &ToolError) -> Option<Arc<str>> {
        let code = error.author_code()?;
        if code.chars().count() > MAX_CODE_CHARS {
            let cut: String = code.chars().take(MAX_CODE_CHARS).collect();
            return Some((*self.redactor.redact(&cut)).into());
        }
        Some(match self.redactor.redact(code) {
            Cow::Borrowed(_) => Arc::clone(code),
            Cow::Owned(code) => code.into(),
        })
    }

    fn headline(&self, error: &ToolError, summary: &Summary) -> String {
        let tool = self.tool;
        match error.kind() {
            ToolError::Timeout { .. } => failed_text(tool, error),
            ToolError::Panicked(_) => format!("Tool '{tool}' panicked: {}", summary.text),
            _ if summary.text.is_empty() => format!("Tool '{tool}' failed without a message"),
            _ => format!("Tool '{tool}' failed: {}", summary.text),
        }
    }

    fn responded(
        &self,
        error: &ToolError,
        text: &str,
        message: &str,
        stored: Option<&Stored>,
    ) -> EventKind {
        ToolResponded {
            call_id: self.call_id.clone(),
            tool: Arc::clone(self.tool),
            ok: false,
            output: json!({ "error": text }),
            duration_ms: self.duration_ms,
            error: Some(ToolFailure {
                reason: Code::new(error.code()),
                code: self.author_code(error),
                message: message.into(),
                error_id: stored.map(|stored| stored.id.clone()),
            }),
        }
        .into()
    }
}

/// Is this a failure of the tool's own, whose text may be long?
pub(crate) fn is_stored(error: &ToolError) -> bool {
    matches!(
        error.kind(),
        ToolError::ExecutionFailed(_)
            | ToolError::InvalidOutput(_)
            | ToolError::Other(_)
            | ToolError::Panicked(_)
            | ToolError::Timeout { .. }
    )
}

fn raw_text(error: &ToolError) -> String {
    match error.kind() {
        ToolError::ExecutionFailed(text) | ToolError::Panicked(text) => text.clone(),
        kind => Chain(kind).to_string(),
    }
}

async fn store_once_more_if_locked(
    store: &dyn ErrorStore,
    error: NewError,
) -> Result<Stored, StoreError> {
    let span = tracing::info_span!("error_store.store", tool = %error.tool);
    async {
        match store.store(error.clone()).await {
            Err(StoreError::Locked(_)) => store.store(error).await,
            result => result,
        }
    }
    .instrument(span)
    .await
}
