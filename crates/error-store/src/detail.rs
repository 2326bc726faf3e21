//! The tool through which the model reads a whole error.

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use backstop_tool::{Arguments, Tool, ToolContext, ToolError};
use layer0::id::ErrorId;
use layer0::{JsonText, ToolSpec};
use serde_json::json;
use tracing::Instrument;

use crate::lookup::{Lookup, look_up};
use crate::page::{INVALID_INPUT, add_page, page_schema};
use crate::{ErrorStore, StoreError, readable};

/// Returns the error for a detail that could not be read because the store failed.
pub(crate) fn unreadable(store: StoreError) -> ToolError {
    ToolError::Caused(store.into()).with_code("DATABASE_ERROR")
}

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
    /// Creates the tool over a store.
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

    fn checks_arguments(&self) -> bool {
        true
    }

    fn input_code(&self) -> Option<&str> {
        Some(INVALID_INPUT)
    }

    fn stores_errors(&self) -> bool {
        false
    }

    async fn call(
        &self,
        arguments: &Arguments,
        context: &ToolContext,
    ) -> Result<JsonText, ToolError> {
        let id =
            arguments.required_text("error_id").map_err(|error| error.with_code(INVALID_INPUT))?;
        let span = tracing::info_span!("error_store.get", session = %context.session);
        let error_id = ErrorId::from(id);
        let get = |session| self.0.get(session, &error_id);
        let found = look_up(&context.sessions, get).instrument(span).await;
        let found = found.map_err(unreadable)?;
        let shown: String = id.chars().take(100).collect();
        let refused = |text: String, code| Err(ToolError::ExecutionFailed(text).with_code(code));
        let record = match found {
            Lookup::Found(record) => record,
            Lookup::Expired => {
                return refused(format!("Error expired: {shown}"), "ERROR_EXPIRED");
            }
            Lookup::Missing => {
                return refused(format!("Error ID not found: {shown}"), "ERROR_NOT_FOUND");
            }
        };
        let mut answer = json!({
            "error_id": record.id(),
            "timestamp": record.at(),
            "tool_name": record.tool(),
            "short_summary": record.summary(),
        });
        add_page(&mut answer, "raw_error", &readable(record.raw()), arguments)?;
        Ok(answer.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryErrorStore, NewError, Origin, Retention};
    use backstop_redact::Redactor;
    use backstop_tool::{Grants, Toolset};
    use layer0::{Code, Timestamp, code};
    use serde_json::Value;

    async fn store_one(text: &str) -> (Toolset, String, Arc<MemoryErrorStore>) {
        let store = Arc::new(MemoryErrorStore::new());
        let at = "2026-01-01T00:00:00Z".parse().unwrap();
        let origin = Origin::new(at, "s-1", "run_1", "c1", "sql");
        let reason = Code::new(code::TOOL_EXECUTION_FAILED);
        let error = NewError::new(origin, reason, None, text, &Redactor::new());
        let id = store.store(error).await.unwrap().id.to_string();
        (Toolset::new().with(ErrorDetail::new(store.clone())).unwrap(), id, store)
    }

    async fn call(
        tools: &Toolset,
        session: &str,
        arguments: impl Into<JsonText>,
    ) -> Result<Value, ToolError> {
        let admitted = tools.admit("get_error_detail", arguments, &Grants::none())?;
        let context =
            ToolContext::new("run_1".into(), session.into(), "c2".into(), Timestamp::default());
        admitted.tool().call(&admitted.arguments, &context).await.map(|output| output.value())
    }

    /// Spec: S7
    #[tokio::test]
    async fn a_long_error_is_read_page_by_page() {
        let text = "äbc".repeat(5_000);
        let (tools, id, _) = store_one(&text).await;
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

    /// Spec: S7, T2
    #[tokio::test]
    async fn pages_begin_at_numbers_without_a_fraction() {
        let (tools, id, _) = store_one("abcdef").await;
        let page = async |offset: &str| {
            let arguments = format!(r#"{{"error_id": "{id}", "offset": {offset}, "limit": 2.0}}"#);
            let arguments = JsonText::parse(&arguments).unwrap();
            call(&tools, "s-1", arguments).await
        };
        for offset in ["3", "3.0", "0.3e1", "300e-2"] {
            let page = page(offset).await.unwrap();
            assert_eq!((&page["raw_error"], &page["next_offset"]), (&json!("de"), &json!(5)));
        }
        for offset in ["3.5", "3.0000000000000001", "-3.0", "1e30"] {
            let error = page(offset).await.unwrap_err();
            assert!(matches!(error.kind(), ToolError::InvalidInput(_)), "{offset}: {error}");
            assert_eq!(error.author_code().map(|code| &**code), Some("INVALID_INPUT"), "{offset}");
        }
    }

    /// Spec: S7
    #[tokio::test]
    async fn failures_carry_their_codes() {
        let (tools, id, store) = store_one("boom").await;
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

        let retention = Retention::NONE.max_rows(0);
        store.prune(retention, Timestamp::default()).await.unwrap();
        let error = call(&tools, "s-1", json!({"error_id": id})).await.unwrap_err();
        assert_eq!(error.kind().to_string(), format!("Error expired: {id}"));
        assert_eq!(code(&error).as_deref(), Some("ERROR_EXPIRED"));
    }
}
