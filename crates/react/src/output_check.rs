//! The check of a final answer against its schema.

use backstop_react_machine::OutputCheck;
use backstop_tool::{Schema, SchemaError};
use layer0::JsonText;
use serde_json::Value;

/// Returns the check of final answers against a schema.
///
/// Schema and answer are checked in canonical form: the first mistake is sent to the model, so it must not depend on
/// the order of keys.
pub(crate) fn output_check(schema: &JsonText) -> Result<OutputCheck, SchemaError> {
    let schema = Schema::new(&schema.value())?;
    Ok(OutputCheck::new(move |text| {
        let value: Value = serde_json::from_str::<JsonText>(without_fence(text))
            .and_then(|answer| answer.read())
            .map_err(|error| format!("it is no JSON: {error}"))?;
        schema.check(&value).map_err(|misfit| misfit.to_string())
    }))
}

/// Removes the Markdown fence that models often put around JSON.
pub(crate) fn without_fence(text: &str) -> &str {
    let text = text.trim();
    let inner = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    let Some(inner) = inner else { return text };
    inner.strip_prefix("json").unwrap_or(inner).trim()
}
