//! A search in the texts of a run.

use backstop_event_log::{EventLog, LogError};
use layer0::id::RunId;
use serde_json::Value;

/// Fields with content of the agent, in which numbers count too; other numbers are counts, times and positions.
const CONTENT: [&str; 4] = ["arguments", "data", "input", "output"];

/// Returns whether a text of a run's record contains `text`, which is in lower case. Texts are messages, thinking,
/// arguments, answers, errors, names, ids, and whole numbers of arguments and answers; definitions of agents, keys of
/// objects and erased events are skipped.
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
            value_holds(&value, text, false)
        });
        if is_found {
            return Ok(true);
        }
    }
    Ok(false)
}

fn value_holds(value: &Value, text: &str, is_content: bool) -> bool {
    match value {
        Value::String(found) => found.to_lowercase().contains(text),
        Value::Array(items) => items.iter().any(|item| value_holds(item, text, is_content)),
        Value::Object(fields) => fields.iter().any(|(key, field)| {
            value_holds(field, text, is_content || CONTENT.contains(&key.as_str()))
        }),
        Value::Number(number) => is_content && number.to_string() == text,
        Value::Null | Value::Bool(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_are_found_at_any_depth() {
        let value = json!({ "key": [99, { "said": "Order\n4711 — GRÖSSE" }] });
        let holds = |text| value_holds(&value, text, false);
        assert!(holds("order\n4711") && holds("grösse"));
        assert!(!holds("key") && !holds("99"));
        let called = json!({ "seq": 7, "arguments": { "order": 4711, "price": 12.5 } });
        let holds = |text| value_holds(&called, text, false);
        assert!(holds("4711") && holds("12.5"));
        assert!(!holds("471") && !holds("7"), "it is no number of the call");
    }
}
