//! Extra fields of a request, unknown to its adapter.

use std::collections::{BTreeMap, BTreeSet};

use layer0::JsonText;
use serde::Serialize;
use serde::ser::Error as _;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

/// Encodes a body with extra fields. Fields that they do not replace keep their text.
pub(crate) fn body_with(
    body: &impl Serialize,
    extra: &Map<String, Value>,
) -> Result<Vec<u8>, serde_json::Error> {
    let body = serde_json::to_vec(body)?;
    if extra.is_empty() {
        return Ok(body);
    }
    let body: Box<RawValue> = serde_json::from_slice(&body)?;
    Ok(merge_fields(&body, extra)?.get().as_bytes().to_vec())
}

fn merge_fields(
    body: &RawValue,
    extra: &Map<String, Value>,
) -> Result<Box<RawValue>, serde_json::Error> {
    let mut fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(body.get())?;
    for (key, value) in extra {
        let inner = fields.get(key).filter(|inner| inner.get().starts_with('{'));
        let merged = match (inner, value) {
            (Some(inner), Value::Object(value)) => merge_fields(inner, value)?,
            // The provider's own tools are appended to those of the agent.
            (_, Value::Array(further)) if key == "tools" => {
                append_items(fields.get(key).map(|list| &**list), further)?
            }
            // Sorted, whatever order serde_json keeps.
            _ => to_raw_value(&JsonText::from(value))?,
        };
        fields.insert(key.clone(), merged);
    }
    to_raw_value(&fields)
}

/// Returns a list with further items appended.
fn append_items(
    list: Option<&RawValue>,
    further: &[Value],
) -> Result<Box<RawValue>, serde_json::Error> {
    let own: Vec<&RawValue> =
        list.map_or(Ok(Vec::new()), |list| serde_json::from_str(list.get()))?;
    let mut taken = BTreeSet::new();
    for item in &own {
        tool_names(&serde_json::from_str(item.get())?, &mut taken);
    }
    for item in further {
        let mut names = BTreeSet::new();
        tool_names(item, &mut names);
        if let Some(name) = names.iter().find(|name| taken.contains(*name)) {
            let why = format!("a tool of the further fields is named `{name}`, as another tool is");
            return Err(serde_json::Error::custom(why));
        }
        taken.extend(names);
    }
    let further = further.iter().map(|item| to_raw_value(&JsonText::from(item)));
    let further = further.collect::<Result<Vec<_>, _>>()?;
    to_raw_value(&own.into_iter().chain(further.iter().map(|item| &**item)).collect::<Vec<_>>())
}

/// Adds the names that the model sees for a tool, or a list of tools, in the form of any protocol.
fn tool_names(item: &Value, names: &mut BTreeSet<String>) {
    let groups = item["functionDeclarations"].as_array().into_iter().flatten();
    for tool in [item, &item["function"], &item["toolSpec"]].into_iter().chain(groups) {
        names.extend(tool["name"].as_str().map(str::to_owned));
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

    #[test]
    fn further_tools_stand_beside_the_agent_s_own() {
        let Value::Object(extra) = json!({ "tools": [{ "type": "web_search" }] }) else {
            panic!("an object")
        };
        for (body, expected) in [
            (
                json!({ "tools": [{ "name": "a" }] }),
                r#"{"tools":[{"name":"a"},{"type":"web_search"}]}"#,
            ),
            (json!({}), r#"{"tools":[{"type":"web_search"}]}"#),
        ] {
            assert_eq!(String::from_utf8(body_with(&body, &extra).unwrap()).unwrap(), expected);
        }
    }

    /// An endpoint would refuse each request, with its own message.
    #[test]
    fn further_tools_have_names_of_their_own() {
        for (own, further) in [
            (json!({ "name": "a" }), json!({ "type": "web_search", "name": "a" })),
            (json!({ "function": { "name": "a" } }), json!({ "function": { "name": "a" } })),
            (
                json!({ "functionDeclarations": [{ "name": "a" }] }),
                json!({ "functionDeclarations": [{ "name": "a" }] }),
            ),
            (json!({ "toolSpec": { "name": "a" } }), json!({ "toolSpec": { "name": "a" } })),
        ] {
            let Value::Object(extra) = json!({ "tools": [further] }) else { panic!("an object") };
            let error = body_with(&json!({ "tools": [own] }), &extra).unwrap_err();
            assert!(error.to_string().contains("is named `a`"), "{error}");
            let Value::Object(twice) = json!({ "tools": [further, further] }) else {
                panic!("an object")
            };
            assert!(body_with(&json!({}), &twice).is_err(), "{further}");
        }
    }

    /// Spec: P12
    #[test]
    fn numbers_of_the_body_keep_their_text() {
        let body = RawValue::from_string(r#"{"a":{"x":3.10},"n":1234e10}"#.to_owned()).unwrap();
        let Value::Object(extra) = json!({ "a": { "y": 1 } }) else { panic!("an object") };
        let written = String::from_utf8(body_with(&body, &extra).unwrap()).unwrap();
        assert_eq!(written, r#"{"a":{"x":3.10,"y":1},"n":1234e10}"#);
    }
}
