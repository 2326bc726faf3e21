//! Arguments that a model sets to `null` to leave them out.

use std::collections::BTreeMap;

use layer0::JsonText;
use serde_json::{Value, json};

use crate::Schema;

/// Maximum number of schemas read for one value. Nulls in further ones are kept.
const MAX_SCHEMAS: usize = 64;

/// Removes arguments that are `null` although they are optional and must not be `null`, in nested objects and lists
/// too; returns `None` if nothing changes.
pub(crate) fn without_nulls(arguments: &JsonText, schema: &Value) -> Option<JsonText> {
    without(arguments, &gather([schema], schema), schema)
}

/// Returns these schemas and all others that apply to the same value. A union applies if only one of its branches is
/// not `null`: such a value may be left out.
fn gather<'s>(schemas: impl IntoIterator<Item = &'s Value>, root: &'s Value) -> Vec<&'s Value> {
    let mut found: Vec<&Value> = schemas.into_iter().collect();
    let mut at = 0;
    while let Some(schema) = found.get(at).copied() {
        let reference = schema["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'));
        let referred = reference.and_then(|pointer| root.pointer(pointer));
        let all = schema["allOf"].as_array().into_iter().flatten();
        let alternatives = ["anyOf", "oneOf"].into_iter().filter_map(|key| {
            let mut some = schema[key].as_array()?.iter().filter(|it| it["type"] != "null");
            some.next().filter(|_| some.next().is_none())
        });
        for next in referred.into_iter().chain(all).chain(alternatives) {
            let is_known = |found: &[&Value]| found.iter().any(|known| std::ptr::eq(*known, next));
            if found.len() < MAX_SCHEMAS && !is_known(&found) {
                found.push(next);
            }
        }
        at += 1;
    }
    found
}

/// Visits each value once, with all its schemas.
fn without(value: &JsonText, schemas: &[&Value], root: &Value) -> Option<JsonText> {
    if value.is_object() {
        return without_members(value, schemas, root);
    }
    let items = schemas.iter().filter_map(|schema| schema.get("items"));
    let items = gather(items.filter(|items| items.is_object()), root);
    let mut list: Vec<JsonText> = (!items.is_empty()).then(|| value.read().ok()).flatten()?;
    let mut is_changed = false;
    for item in &mut list {
        if let Some(changed) = without(item, &items, root) {
            *item = changed;
            is_changed = true;
        }
    }
    is_changed.then(|| JsonText::from_value(&list).ok()).flatten()
}

fn without_members(object: &JsonText, schemas: &[&Value], root: &Value) -> Option<JsonText> {
    let mut properties: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for known in schemas.iter().filter_map(|schema| schema["properties"].as_object()) {
        for (name, property) in known {
            properties.entry(name).or_default().push(property);
        }
    }
    let mut fields: BTreeMap<String, JsonText> =
        (!properties.is_empty()).then(|| object.read().ok()).flatten()?;
    let mut is_changed = false;
    for (name, properties) in properties {
        let Some(field) = fields.get(name) else { continue };
        if field.get() != "null" {
            if let Some(field) = without(field, &gather(properties, root), root) {
                fields.insert(name.to_owned(), field);
                is_changed = true;
            }
        } else if !schemas.iter().any(|schema| is_required(name, schema))
            && properties.iter().any(|property| !can_be_null(property, root))
        {
            fields.remove(name);
            is_changed = true;
        }
    }
    is_changed.then(|| JsonText::from_value(&fields).ok()).flatten()
}

fn is_required(name: &str, schema: &Value) -> bool {
    schema["required"].as_array().is_some_and(|required| required.iter().any(|it| it == name))
}

/// References are resolved in the root schema.
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
    // If the schema cannot be compiled, the value is kept.
    Schema::new(&schema).map_or(true, |schema| schema.check(&Value::Null).is_ok())
}

#[cfg(all(test, feature = "json-schema"))]
mod tests {
    use super::*;

    /// Spec: Q2
    #[test]
    fn nulls_are_left_out_at_any_depth() {
        let item = json!({ "type": "object", "properties": { "a": { "type": "string" }, "b": { "type": ["string", "null"] } } });
        let text = r##"{"o":{"a":null,"b":null}}"##;
        for property in [
            item.clone(),
            json!({ "$ref": "#/$defs/item" }),
            json!({ "anyOf": [{ "$ref": "#/$defs/item" }, { "type": "null" }] }),
            json!({ "allOf": [{ "type": "object" }, { "$ref": "#/$defs/item" }] }),
        ] {
            let schema = json!({ "properties": { "o": property }, "$defs": { "item": item } });
            let found = without_nulls(&JsonText::parse(text).unwrap(), &schema);
            assert_eq!(found.unwrap().get(), r#"{"o":{"b":null}}"#, "{schema}");
            let schema = json!({ "properties": { "o": { "type": "array", "items": property } }, "$defs": { "item": item } });
            let list = JsonText::parse(r#"{"o":[{"a":null,"n":3.10},{"a":"x"}]}"#).unwrap();
            let found = without_nulls(&list, &schema);
            assert_eq!(found.unwrap().get(), r#"{"o":[{"n":3.10},{"a":"x"}]}"#, "{schema}");
        }
        // A schema that refers to itself alone ends.
        let circle = json!({ "$ref": "#/$defs/a", "$defs": { "a": { "$ref": "#/$defs/a" } } });
        assert_eq!(without_nulls(&JsonText::parse(text).unwrap(), &circle), None);
        // Followed at each place, the references of this one would be more than there is time for.
        let itself = vec![json!({ "$ref": "#" }); 50];
        let wide =
            json!({ "allOf": itself, "properties": { "a": { "anyOf": itself, "allOf": itself } } });
        let deep = format!("{}null{}", r#"{"a":"#.repeat(90), "}".repeat(90));
        assert_eq!(without_nulls(&JsonText::parse(&deep).unwrap(), &wide), None);
    }

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
