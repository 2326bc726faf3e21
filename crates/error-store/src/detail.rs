//! The tool through which the model reads a whole error.

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use layer0::ToolSpec;
use layer0::failure::Chain;
use layer0::id::ErrorId;
use serde_json::{Value, json};
use tool::{Tool, ToolContext, ToolError};
use tracing::Instrument;

use crate::look_up::look_up;
use crate::page::{add_page, page_schema};
use crate::{ErrorStore, readable};

/// The code of a detail that could not be read because the store failed.
pub const DATABASE_ERROR: &str = "DATABASE_ERROR";

static SPEC: LazyLock<ToolSpec> = LazyLock::new(|| {
    let description = "Read the complete text of an error that an earlier tool call reported with \
        an error id. The summary you already have is usually enough; use this only when you cannot \
        tell from it what went wrong. Input: error_id (string, as shown after `Error ID:`), \
        optionally offset and limit (bytes, default 0 and 8192) for long errors. Output: error_id, \
        timestamp, tool_name, short_summary and raw_error; next_offset is set when there is more. \
        Example: {\"error_id\": \"err_20260101_120000_a1b2c3\"}";
    let schema = page_schema("error_id", "The id shown after `Error ID:`.");
    ToolSpec::new("get_error_detail", description, schema).idempotent().exploratory()
});

/// `get_error_detail`: reads a stored error of the session, page by page.
#[derive(Clone)]
pub struct ErrorDetail(Arc<dyn ErrorStore>);

impl ErrorDetail {
    /// Makes the tool over a store.
    #[must_use]
    pub fn new(store: Arc<dyn ErrorStore>) -> Self {
        Self(store)
    }
}

#[async_trait]
impl Tool for ErrorDetail {
    fn spec(&self) -> &ToolSpec {
        &SPEC
    }

    fn input_code(&self) -> Option<&str> {
        Some("INVALID_INPUT")
    }

    fn stores_errors(&self) -> bool {
        false
    }

    async fn call(&self, arguments: &Value, context: &ToolContext) -> Result<Value, ToolError> {
        let id = arguments["error_id"].as_str().unwrap_or_default();
        let span = tracing::info_span!("error_store.get", session = %context.session);
        let error_id = ErrorId::from(id);
        let get = |session| self.0.get(session, &error_id);
        let found = look_up(&context.sessions, get).instrument(span).await;
        let found = found.map_err(|error| {
            ToolError::ExecutionFailed(Chain(&error).to_string()).with_code(DATABASE_ERROR)
        })?;
        let Some(record) = found else {
            let shown: String = id.chars().take(100).collect();
            return Err(ToolError::ExecutionFailed(format!("Error ID not found: {shown}"))
                .with_code("ERROR_NOT_FOUND"));
        };
        let mut answer = json!({
            "error_id": record.id,
            "timestamp": record.at,
            "tool_name": record.tool,
            "short_summary": record.summary,
        });
        add_page(&mut answer, "raw_error", &readable(&record.raw), arguments);
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryErrorStore, NewError, raw_json};
    use layer0::Timestamp;
    use tool::{Grants, Toolset};

    async fn stored(text: &str) -> (Toolset, String) {
        let store = Arc::new(MemoryErrorStore::new());
        let error = NewError {
            at: "2026-01-01T00:00:00Z".parse().unwrap(),
            session: "s-1".into(),
            run: "run_1".into(),
            call_id: "c1".into(),
            tool: "sql".into(),
            reason: "tool.execution_failed".into(),
            code: None,
            raw: raw_json(text),
            summary: "short".into(),
        };
        let id = store.store(error).await.unwrap().id.to_string();
        (Toolset::new().with(ErrorDetail::new(store)).unwrap(), id)
    }

    async fn call(tools: &Toolset, session: &str, arguments: Value) -> Result<Value, ToolError> {
        let admitted = tools.admit("get_error_detail", arguments, &Grants::none())?;
        let context =
            ToolContext::new("run_1".into(), session.into(), "c2".into(), Timestamp::default());
        admitted.tool().call(&admitted.arguments, &context).await
    }

    /// Spec: S7
    #[tokio::test]
    async fn a_long_error_is_read_page_by_page() {
        let text = "äbc".repeat(5_000);
        let (tools, id) = stored(&text).await;
        let (mut offset, mut read, mut pages) = (0, String::new(), 0);
        loop {
            let page =
                call(&tools, "s-1", json!({"error_id": id, "offset": offset})).await.unwrap();
            read.push_str(page["raw_error"].as_str().unwrap());
            pages += 1;
            match page["next_offset"].as_u64() {
                Some(next) => offset = next,
                None => break,
            }
        }
        assert_eq!((read, pages), (text, 3));
    }

    /// Spec: S7
    #[tokio::test]
    async fn failures_carry_their_codes() {
        let (tools, id) = stored("boom").await;
        let whole = call(&tools, "s-1", json!({"error_id": id})).await.unwrap();
        assert_eq!(whole["raw_error"], "boom");
        assert_eq!(whole["timestamp"], "2026-01-01T00:00:00.000Z");

        let code = |error: &ToolError| error.author_code().map(ToString::to_string);
        let error = call(&tools, "s-1", json!({"error_id": 7})).await.unwrap_err();
        assert_eq!(error.kind().to_string(), "invalid input: error_id must be a string");
        assert_eq!(code(&error).as_deref(), Some("INVALID_INPUT"));

        let error = call(&tools, "s-2", json!({"error_id": id})).await.unwrap_err();
        assert_eq!(error.kind().to_string(), format!("Error ID not found: {id}"));
        assert_eq!(code(&error).as_deref(), Some("ERROR_NOT_FOUND"));
    }
}
