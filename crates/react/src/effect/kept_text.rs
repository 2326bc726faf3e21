//! Texts of failures that are no tool's: bounded in the record, and whole in the error store.

use backstop_error_store::{NewError, Origin};
use layer0::failure::Failure;
use layer0::id::CallId;
use layer0::{Code, text};

use super::failure::store_once_more_if_locked;
use crate::agent::inner::AgentInner;
use crate::hook::HookContext;

/// The origin of a failure.
pub(crate) struct FailureSource<'a> {
    /// The hook or the memory, as the error store lists it in the place of a tool.
    pub(crate) name: &'a str,
    pub(crate) call_id: Option<&'a CallId>,
    pub(crate) code: &'static str,
}

/// Returns the text of a failure for the record, without secrets: as it is, or, of a long one, its summary and the id
/// of the whole in the error store.
pub(crate) async fn keep_text(
    agent: &AgentInner,
    context: &HookContext,
    source: FailureSource<'_>,
    text: &str,
) -> String {
    let text = agent.redactor.redact(text);
    let bounded = text::cut_message(&text);
    let store = agent.stores.errors.as_deref().filter(|_| bounded != text);
    let Some(store) = store else { return bounded.into_owned() };
    let FailureSource { name, call_id, code } = source;
    let call_id = call_id.cloned().unwrap_or_else(|| "".into());
    let HookContext { run, session } = context.clone();
    let origin = Origin::new(agent.clock.now(), session, run, call_id, name);
    let new = NewError::new(origin, Code::new(code), None, &text, &agent.redactor);
    match store_once_more_if_locked(store, new.clone()).await {
        Ok(stored) => format!("{} [Error ID: {}]", new.summary().text, stored.id),
        Err(failed) => {
            tracing::warn!(code = failed.code(), "error store failed");
            bounded.into_owned()
        }
    }
}
