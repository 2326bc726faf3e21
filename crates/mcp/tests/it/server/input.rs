//! Requests for input in place of a result.

use serde_json::{Value, json};

/// Returns the request for input of a row; `None` for a row without one.
pub(crate) fn asked(row: &str) -> Option<Value> {
    Some(match row {
        "asks_for_input" | "asks_for_input_in_every_call" => who(),
        "asks_for_nothing" => required(json!({})),
        "asks_for_sampling" => {
            let params = json!({"messages": [], "maxTokens": 1});
            required(json!({"thought": {"method": "sampling/createMessage", "params": params}}))
        }
        "asks_for_something_unknown" => required(json!({"x": {"method": "x/y"}})),
        "asks_for_too_much" => {
            required((0..17).map(|n| (n.to_string(), json!({"method": "roots/list"}))).collect())
        }
        _ => return None,
    })
}

/// Builds a result with these requests.
pub(crate) fn required(requests: Value) -> Value {
    json!({"resultType": "input_required", "inputRequests": requests})
}

/// Builds a request for a name.
pub(crate) fn who() -> Value {
    let schema =
        json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]});
    let params = json!({"mode": "form", "message": "Who?", "requestedSchema": schema});
    let mut asked = required(json!({"who": {"method": "elicitation/create", "params": params}}));
    asked["requestState"] = STATE.into();
    asked
}

/// The state that the server wants back.
pub(crate) const STATE: &str = "step=2;\u{e9}\"\n";
