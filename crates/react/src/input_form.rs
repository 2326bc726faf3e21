//! How the call of a tool asks an operator: with a text, or with what the operator's schema says.

use std::sync::Arc;

use backstop_event_log::text_digest;
use backstop_tool::{Arguments, ToolError};
use layer0::ToolSpec;
use layer0::text::plain;
use serde_json::{Value, json};

/// The argument that asks, where the arguments are not the input themselves.
const INPUT: &str = "input";

/// What of the arguments is the input of the operator.
#[derive(Debug, Clone, Copy)]
pub(crate) enum InputForm {
    /// `input`, a text.
    Text,
    /// `input`, any JSON.
    Json,
    /// All of them: its input is an object.
    Object,
}

impl InputForm {
    /// Tells how an operator is asked whose input has to fit this schema.
    pub(crate) fn by(schema: Option<&Value>) -> Self {
        match schema {
            None => Self::Text,
            Some(schema) if schema["type"] == "object" => Self::Object,
            Some(_) => Self::Json,
        }
    }

    /// Makes the tool of an operator.
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

    /// Checks what a tool without a validator cannot.
    pub(crate) const fn checks_arguments(self) -> bool {
        matches!(self, Self::Text)
    }

    /// Returns what a call asks the operator.
    pub(crate) fn input(self, arguments: &Arguments) -> Result<Value, ToolError> {
        Ok(match self {
            Self::Text => arguments.text_of(INPUT)?.into(),
            Self::Json => arguments[INPUT].clone(),
            Self::Object => arguments.value().clone(),
        })
    }

    /// Returns the digest of what a call asks the operator.
    pub(crate) fn digest(self, arguments: &Arguments) -> String {
        let input = self.input(arguments);
        text_digest(&input.map_or_else(|_| String::new(), |input| plain(&input)))
    }
}
