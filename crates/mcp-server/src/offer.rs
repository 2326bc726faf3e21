//! Operators offered as tools.

use std::sync::Arc;

use rmcp::model::{JsonObject, Tool};
use serde_json::{Value, json};

/// An operator offered as a tool.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Offer {
    /// Name of the operator and of the tool.
    pub operator: Arc<str>,
    /// Purpose and use of the tool, for the model that calls it.
    pub description: Arc<str>,
    /// JSON Schema of `input`; `None` for text.
    pub input_schema: Option<Value>,
}

impl Offer {
    /// Offers an operator whose input is text.
    pub fn new(operator: impl Into<Arc<str>>, description: impl Into<Arc<str>>) -> Self {
        Self { operator: operator.into(), description: description.into(), input_schema: None }
    }

    /// Sets the JSON Schema of `input`.
    ///
    /// ```
    /// use backstop_mcp_server::Offer;
    ///
    /// let schema = serde_json::json!({"type": "object", "properties": {"city": {"type": "string"}}});
    /// let offer = Offer::new("weather", "Says what the weather is.").input_schema(schema);
    /// assert!(offer.input_schema.is_some());
    /// ```
    #[must_use]
    pub fn input_schema(mut self, schema: Value) -> Self {
        self.input_schema = Some(schema);
        self
    }

    /// Returns the tool for the list of tools.
    pub(crate) fn tool(&self) -> Tool {
        let text = json!({"type": "string", "description": "What to do, in words."});
        // Models follow neither `oneOf` nor counts of properties, and fill in every property: blank text counts as left
        // out.
        let schema = json!({
            "type": "object",
            "properties": {
                "input": self.input_schema.clone().unwrap_or(text),
                "run": {
                    "type": "string",
                    "description": "Leave this out to start new work. To be told what became of a run that was \
                        answered before its work was done, give its id here and leave `input` out.",
                },
            },
            "additionalProperties": false,
        });
        let schema: JsonObject = schema.as_object().cloned().unwrap_or_default();
        Tool::new(self.operator.to_string(), self.description.to_string(), Arc::new(schema))
    }
}
