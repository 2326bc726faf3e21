//! A search in the texts of a run.

use backstop_event_log::{EventLog, LogError};
use layer0::id::RunId;
use serde_json::Value;

/// Returns whether a text of a run's record contains `text`, which is in lower case. Texts are messages, thinking,
/// arguments, answers, errors, names and ids; definitions of agents, keys of objects and erased events are skipped.
pub(super) async fn holds_text(
    log: &dyn EventLog,
    run: &RunId,
    text: &str,
) -> Result<bool, LogError> {
    for record in log.records(run, 1).await? {
        let Some(payload) = record.payload.text() else { continue };
        // An unreadable record contains no text that could be shown.
        let is_found = layer0::read_value(payload).is_ok_and(|mut value| {
            // The definition of an agent is no content of its run.
            if let Some(agent) = value.get_mut("agent") {
                *agent = Value::Null;
            }
            value_holds(&value, text)
        });
        if is_found {
            return Ok(true);
        }
    }
    Ok(false)
}

fn value_holds(value: &Value, text: &str) -> bool {
    match value {
        Value::String(found) => found.to_lowercase().contains(text),
        Value::Array(items) => items.iter().any(|item| value_holds(item, text)),
        Value::Object(fields) => fields.values().any(|field| value_holds(field, text)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_are_found_at_any_depth() {
        let value = json!({ "key": [99, { "said": "Order\n4711 — GRÖSSE" }] });
        assert!(value_holds(&value, "order\n4711") && value_holds(&value, "grösse"));
        assert!(!value_holds(&value, "key") && !value_holds(&value, "99"));
    }
}
