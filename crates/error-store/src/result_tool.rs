//! The tool through which the model reads the rest of a large result.

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use backstop_tool::{Arguments, Tool, ToolContext, ToolError};
use layer0::id::ResultId;
use layer0::{JsonText, ToolSpec};
use serde_json::json;

use crate::detail::unreadable;
use crate::lookup::{Lookup, look_up};
use crate::page::{INVALID_INPUT, add_page, page_schema};
use crate::results::ResultStore;

static SPEC: LazyLock<ToolSpec> = LazyLock::new(|| {
    let description = "Read on in a large tool result of which you were shown the beginning. The \
        beginning is often enough. Input: result_id (string, as shown after `Result ID:`), optionally \
        offset and limit (bytes, default 0 and 8192). Output: result_id, tool_name and content; \
        next_offset is set when there is more. \
        Example: {\"result_id\": \"res_20260101_120000_a1b2c3\", \"offset\": 8192}";
    let schema = page_schema("result_id", "The id shown after `Result ID:`.");
    ToolSpec::new("get_tool_result", description, schema).idempotent().exploratory()
});

/// `get_tool_result`: reads a stored result of the session, page by page.
#[derive(Clone)]
pub struct ResultDetail(Arc<dyn ResultStore>);

impl ResultDetail {
    /// Creates the tool over a store.
    #[must_use]
    pub fn new(store: Arc<dyn ResultStore>) -> Self {
        Self(store)
    }
}

#[async_trait]
impl Tool for ResultDetail {
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
            arguments.required_text("result_id").map_err(|error| error.with_code(INVALID_INPUT))?;
        let result_id = ResultId::from(id);
        let get = |session| self.0.get(session, &result_id);
        let found = look_up(&context.sessions, get).await;
        let found = found.map_err(unreadable)?;
        let shown: String = id.chars().take(100).collect();
        let refused = |text: String, code| Err(ToolError::ExecutionFailed(text).with_code(code));
        let record = match found {
            Lookup::Found(record) => record,
            Lookup::Expired => {
                return refused(format!("Result expired: {shown}"), "RESULT_EXPIRED");
            }
            Lookup::Missing => {
                return refused(format!("Result ID not found: {shown}"), "RESULT_NOT_FOUND");
            }
        };
        let mut answer = json!({"result_id": record.id, "tool_name": record.origin.tool});
        add_page(&mut answer, "content", &record.body, arguments)?;
        Ok(answer.into())
    }
}
