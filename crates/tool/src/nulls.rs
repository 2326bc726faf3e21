//! Arguments that a model gives as `null` to say that it leaves them out.

use std::collections::BTreeMap;

use layer0::JsonText;
use serde_json::{Value, json};

use crate::Schema;

/// Returns arguments without those that are `null`, need not be there and must not be `null`, in objects within them
/// too; `None` where there are none.
pub(crate) fn without_nulls(arguments: &JsonText, schema: &Value) -> Option<JsonText> {
    without(arguments, schema, schema)
}

fn without(object: &JsonText, schema: &Value, root: &Value) -> Option<JsonText> {
    let mut fields: BTreeMap<String, JsonText> =
        object.is_object().then(|| object.read().ok()).flatten()?;
    let mut is_changed = false;
    for (name, property) in schema["properties"].as_object()? {
        let Some(field) = fields.get(name) else { continue };
        if field.get() != "null" {
            if let Some(field) = without(field, property, root) {
                fields.insert(name.clone(), field);
                is_changed = true;
            }
        } else if !is_required(name, schema) && !can_be_null(property, root) {
            fields.remove(name);
            is_changed = true;
        }
    }
    is_changed.then(|| JsonText::of(&fields).ok()).flatten()
}

fn is_required(name: &str, schema: &Value) -> bool {
    schema["required"].as_array().is_some_and(|required| required.iter().any(|it| it == name))
}

/// What a schema refers to is looked up in the whole one.
fn can_be_null(property: &Value, root: &Value) -> bool {
    let within = |keyword: &str| match &root[keyword] {
        Value::Null => json!({}),
        definitions => definitions.clone(),
    };
    let schema = json!({
        "$defs": within("$defs"),
        "definitions": within("definitions"),
        "allOf": [property],
    });
    // What cannot be told stays as it was given.
    Schema::new(&schema).map_or(true, |schema| schema.check(&Value::Null).is_ok())
}

#[cfg(all(test, feature = "json-schema"))]
mod tests {
    use super::*;

    /// Spec: Q2
    #[test]
    fn unneeded_nulls_are_left_out() {
        let schema = json!({
            "type": "object",
            "$defs": {"name": {"type": "string"}, "maybe": {"type": ["string", "null"]}},
            "properties": {
                "a": {"type": "integer"},
                "b": {"type": ["integer", "null"]},
                "c": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "d": {"$ref": "#/$defs/name"},
                "e": {"$ref": "#/$defs/maybe"},
                "f": {"type": "object", "properties": {"g": {"enum": [1, 2]}}},
                "h": {},
                "i": {"type": "string"},
            },
            "required": ["i"],
        });
        #[track_caller]
        fn check(schema: &Value, arguments: &str, expected: Option<&str>) {
            let arguments = JsonText::parse(arguments).unwrap();
            let found = without_nulls(&arguments, schema);
            assert_eq!(found.as_ref().map(JsonText::get), expected);
        }
        check(&schema, r#"{"a":null,"i":"x","n":3.10}"#, Some(r#"{"i":"x","n":3.10}"#));
        check(&schema, r#"{"d":null,"f":{"g":null}}"#, Some(r#"{"f":{}}"#));
        for kept in [
            r#"{"b":null,"c":null,"e":null,"h":null}"#,
            r#"{"i":null}"#,
            r#"{"z":null}"#,
            "[]",
            "null",
        ] {
            check(&schema, kept, None);
        }
    }
}
