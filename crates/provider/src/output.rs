use std::sync::Arc;

use layer0::JsonText;
use serde::Serialize;

/// The schema that the final answer must match.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct OutputSchema {
    /// The name of the schema: up to 64 letters, digits, `_` and `-`.
    pub name: Arc<str>,
    /// The JSON Schema.
    pub schema: JsonText,
}

impl OutputSchema {
    /// Makes an output schema from a JSON Schema. It is named after the schema's title, or `answer`.
    ///
    /// ```
    /// use backstop_provider::OutputSchema;
    /// use layer0::JsonText;
    ///
    /// let schema = JsonText::parse(r#"{"title": "Open invoices", "type": "object"}"#)?;
    /// assert_eq!(&*OutputSchema::new(schema).name, "Open_invoices");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn new(schema: JsonText) -> Self {
        let value = schema.value();
        let title = value.get("title").and_then(|title| title.as_str()).unwrap_or_default();
        let is_sent = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let name: String =
            title.chars().take(64).map(|c| if is_sent(c) { c } else { '_' }).collect();
        let name = if name.is_empty() { "answer" } else { &name };
        Self { name: name.into(), schema }
    }
}

/// A provider's support for output schemas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutputSupport {
    /// The provider enforces the schema, but does not describe it to the model: the instructions do.
    Constrained,
    /// The provider describes the schema to the model and enforces it.
    Native,
    /// The provider does not support schemas, or not this one: only the instructions describe it.
    Prompt,
}
