//! Outputs that are too large for the model: stored whole, shown in part.

use backstop_error_store::{NewResult, ResultStore, StoreError, preview_text, truncated_text};
use layer0::event::{EventKind, ResultStored};
use layer0::failure::{Chain, Failure};
use layer0::id::ResultId;
use layer0::{JsonText, code};

use super::failure::Failing;
use crate::agent::inner::AgentInner;

/// The name of the operation in `error_store.degraded` events.
const STORE_RESULT: &str = "store_result";

/// The output of a tool, by whether the model can read the whole.
pub(crate) enum ShownResult {
    Whole(JsonText),
    Large(String),
}

impl ShownResult {
    /// Measures an output in the form that the model reads.
    pub(crate) fn measure(output: JsonText, agent: &AgentInner) -> Self {
        let limit = limit(agent);
        let shown = output.display_text();
        if shown.len() > limit { Self::Large(shown.into_owned()) } else { Self::Whole(output) }
    }

    /// Returns the model's text of an output that cannot be stored.
    pub(crate) fn cut(self, agent: &AgentInner) -> JsonText {
        match self {
            Self::Whole(output) => output,
            Self::Large(body) => JsonText::string(&truncated_text(&body, limit(agent))),
        }
    }

    /// Stores a large output. Returns its event for the log, and the model's text.
    pub(crate) async fn keep(
        self,
        agent: &AgentInner,
        call: &Failing<'_>,
    ) -> (Option<EventKind>, JsonText) {
        let body = match self {
            Self::Whole(output) => return (None, output),
            Self::Large(body) => body,
        };
        let Some(store) = &agent.stores.results else {
            let shown = truncated_text(&body, limit(agent));
            let note =
                call.build_degraded(STORE_RESULT, code::STORE_CLOSED, "there is no result store");
            return (Some(note), JsonText::string(&shown));
        };
        let result = NewResult::new(call.origin(), &body, &agent.redactor);
        match put_once_more_if_locked(&**store, &result).await {
            Ok(result_id) => {
                let shown = preview_text(result.body(), &result_id, limit(agent));
                let bytes = u64::try_from(result.body().len()).unwrap_or(u64::MAX);
                let stored = ResultStored::new(result_id, call.call_id().clone(), bytes);
                (Some(stored.into()), JsonText::string(&shown))
            }
            Err(error) => {
                tracing::warn!(code = error.code(), error = %Chain(&error), "result store failed");
                let shown = truncated_text(result.body(), limit(agent));
                let note =
                    call.build_degraded(STORE_RESULT, error.code(), &Chain(&error).to_string());
                (Some(note), JsonText::string(&shown))
            }
        }
    }
}

fn limit(agent: &AgentInner) -> usize {
    usize::try_from(agent.definition.limits.max_result_bytes).unwrap_or(usize::MAX)
}

async fn put_once_more_if_locked(
    store: &dyn ResultStore,
    result: &NewResult,
) -> Result<ResultId, StoreError> {
    match store.put(result.clone()).await {
        Err(StoreError::Locked(_)) => store.put(result.clone()).await,
        done => done,
    }
}
