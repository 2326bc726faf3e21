//! Outputs that are too large for the model: kept whole, shown in part.

use error_store::{NewResult, ResultStore, StoreError, preview_text, truncated_text};
use layer0::code;
use layer0::event::{EventKind, ResultStored};
use layer0::failure::{Chain, Failure};
use layer0::id::ResultId;
use serde_json::Value;

use crate::agent::Inner;
use crate::failing::Failing;

/// The operation that stores a large result, as `error_store.degraded` names it.
const STORE_RESULT: &str = "store_result";

/// A tool's output, by whether the model can read all of it.
pub(crate) enum Sized {
    Small(Value),
    Large(String),
}

impl Sized {
    /// Measures an output as the model would read it.
    pub(crate) fn of(output: Value, agent: &Inner) -> Self {
        let limit = limit(agent);
        match output {
            Value::String(text) if text.len() > limit => Self::Large(text),
            Value::Object(_) | Value::Array(_) => {
                let text = output.to_string();
                if text.len() > limit { Self::Large(text) } else { Self::Small(output) }
            }
            output => Self::Small(output),
        }
    }

    /// Keeps what is large. Returns what to note in the log, and what the model reads.
    pub(crate) async fn keep(
        self,
        agent: &Inner,
        call: &Failing<'_>,
    ) -> (Option<EventKind>, Value) {
        let body = match self {
            Self::Small(output) => return (None, output),
            Self::Large(body) => body,
        };
        let Some(store) = &agent.results else {
            let shown = truncated_text(&body, limit(agent));
            let note = call.degraded(STORE_RESULT, code::STORE_CLOSED, "there is no result store");
            return (Some(note), Value::String(shown));
        };
        let result = NewResult {
            at: call.at,
            session: call.session.clone(),
            run: call.run.clone(),
            call_id: call.call_id.clone(),
            tool: call.tool.clone(),
            body,
        };
        match put_once_more_if_locked(&**store, &result).await {
            Ok(result_id) => {
                let shown = preview_text(&result.body, &result_id);
                let bytes = u64::try_from(result.body.len()).unwrap_or(u64::MAX);
                let stored = ResultStored { result_id, call_id: result.call_id, bytes };
                (Some(stored.into()), Value::String(shown))
            }
            Err(error) => {
                tracing::warn!(code = error.code(), error = %Chain(&error), "result store failed");
                let shown = truncated_text(&result.body, limit(agent));
                let note = call.degraded(STORE_RESULT, error.code(), &Chain(&error).to_string());
                (Some(note), Value::String(shown))
            }
        }
    }
}

fn limit(agent: &Inner) -> usize {
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
