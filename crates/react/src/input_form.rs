//! The input of an operator in a tool call: a text, or the JSON of the operator's schema.

use std::sync::Arc;

use backstop_event_log::text_digest;
use backstop_tool::{Arguments, ToolError};
use layer0::ToolSpec;
use layer0::text::plain;
use serde_json::{Value, json};

/// The argument with the input, unless all arguments are the input.
const INPUT: &str = "input";

/// The part of the arguments that is the operator's input.
#[derive(Debug, Clone, Copy)]
pub(crate) enum InputForm {
    /// `input`, a text.
    Text,
    /// `input`, any JSON.
    Json,
    /// All arguments: the input is an object.
    Object,
}

impl InputForm {
    /// Returns the form for an operator whose input has to fit this schema.
    pub(crate) fn by(schema: Option<&Value>) -> Self {
        match schema {
            None => Self::Text,
            Some(schema) if schema["type"] == "object" => Self::Object,
            Some(_) => Self::Json,
        }
    }

    /// Returns the spec of an operator's tool.
    pub(crate) fn spec(
        operator: impl Into<Arc<str>>,
        description: impl Into<Arc<str>>,
        schema: Option<&Value>,
    ) -> ToolSpec {
        let text = || json!({ "type": "string", "description": "What to ask." });
        let arguments = match (Self::by(schema), schema) {
            (Self::Object, Some(schema)) => schema.clone(),
            (_, schema) => json!({
                "type": "object",
                "properties": { INPUT: schema.cloned().unwrap_or_else(text) },
                "required": [INPUT],
                "additionalProperties": false,
            }),
        };
        ToolSpec::new(operator, description, arguments).dispatches()
    }

    /// Returns whether the form checks arguments itself, as needed for a tool without a validator.
    pub(crate) const fn checks_arguments(self) -> bool {
        matches!(self, Self::Text)
    }

    /// Returns the operator's input in a call.
    pub(crate) fn input(self, arguments: &Arguments) -> Result<Value, ToolError> {
        Ok(match self {
            Self::Text => arguments.required_text(INPUT)?.into(),
            Self::Json => arguments[INPUT].clone(),
            Self::Object => arguments.value().clone(),
        })
    }

    /// Returns the digest of the operator's input in a call.
    pub(crate) fn digest(self, arguments: &Arguments) -> String {
        let input = self.input(arguments);
        text_digest(&input.map_or_else(|_| String::new(), |input| plain(&input)))
    }
}
