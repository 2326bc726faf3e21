use std::sync::Arc;

use layer0::JsonText;
use serde::Serialize;

/// The form that the final answer has to have.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct OutputSchema {
    /// The name of the form: up to 64 letters, digits, `_` and `-`.
    pub name: Arc<str>,
    /// Its JSON Schema.
    pub schema: JsonText,
}

impl OutputSchema {
    /// Makes the form of a JSON Schema. It is named after the schema's title, or `answer`.
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

/// A provider's support for the form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutputSupport {
    /// It holds the answer to the form, but does not tell the model why: its instructions do too.
    Constrained,
    /// It informs the model about the form, and holds the answer to it.
    Native,
    /// It knows no forms, or not this one: the model's instructions alone name it.
    Prompt,
}
