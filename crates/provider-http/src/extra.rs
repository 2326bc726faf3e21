//! Fields of a request that its adapter does not know.

use serde::Serialize;
use serde_json::{Map, Value};

/// Writes a body with further fields in it.
pub(crate) fn body_with(
    body: &impl Serialize,
    extra: &Map<String, Value>,
) -> Result<Vec<u8>, serde_json::Error> {
    if extra.is_empty() {
        return serde_json::to_vec(body);
    }
    let mut body = serde_json::to_value(body)?;
    if let Value::Object(fields) = &mut body {
        merge(fields, extra);
    }
    serde_json::to_vec(&body)
}

fn merge(fields: &mut Map<String, Value>, extra: &Map<String, Value>) {
    for (key, value) in extra {
        match (fields.get_mut(key), value) {
            (Some(Value::Object(inner)), Value::Object(value)) => merge(inner, value),
            _ => {
                fields.insert(key.clone(), value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_merged_and_other_values_replaced() {
        let body = json!({ "model": "m", "options": { "num_ctx": 1, "seed": 2 }, "stop": ["a"] });
        let extra = json!({ "options": { "num_ctx": 8 }, "stop": ["b"], "top_p": 0.5 });
        let Value::Object(extra) = extra else { panic!("an object") };
        let written = body_with(&body, &extra).unwrap();
        let expected = json!({
            "model": "m", "options": { "num_ctx": 8, "seed": 2 }, "stop": ["b"], "top_p": 0.5,
        });
        assert_eq!(serde_json::from_slice::<Value>(&written).unwrap(), expected);
    }
}
