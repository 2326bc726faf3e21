//! Conversion of earlier drafts of JSON Schema to 2020-12, against which Anthropic validates every
//! input schema.

use serde_json::{Map, Value, json};

/// Keywords whose value is a schema.
pub(super) const ONE: [&str; 11] = [
    "additionalProperties",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contentSchema",
];
/// Keywords whose value is a list of schemas.
pub(super) const LISTS: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
/// Keywords whose value maps names to schemas.
pub(super) const NAMED: [&str; 5] =
    ["$defs", "definitions", "dependentSchemas", "patternProperties", "properties"];
/// Keywords of earlier drafts, or for locating a schema, which no endpoint reads.
const DROPPED: [&str; 5] = ["$schema", "additionalItems", "dependencies", "divisibleBy", "extends"];
/// Keywords whose value is a number.
const NUMBERS: [&str; 11] = [
    "exclusiveMaximum",
    "exclusiveMinimum",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
];
/// The types of JSON Schema.
const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];

/// Converts a schema and its subschemas to draft 2020-12. Keywords that cannot be converted are removed.
pub(super) fn modernise(schema: &mut Map<String, Value>) {
    DROPPED.iter().for_each(|key| drop(schema.remove(*key)));
    if schema.get("id").is_some_and(Value::is_string) {
        schema.remove("id");
    }
    exclusive(schema, "exclusiveMinimum", "minimum");
    exclusive(schema, "exclusiveMaximum", "maximum");
    if schema.get("items").is_some_and(Value::is_array)
        && let Some(items) = schema.remove("items")
    {
        schema.entry("prefixItems").or_insert(items);
    }
    schema.retain(|key, value| is_valid(key, value));
    clean_required(schema);
    types(schema);
    inside(schema);
    items(schema);
}

/// Adds `items` to the schema of a list, as OpenAI refuses one without: "array schema missing items".
fn items(schema: &mut Map<String, Value>) {
    let is_list = match schema.get("type") {
        Some(Value::Array(types)) => types.iter().any(|one| one == "array"),
        Some(one) => one == "array",
        None => false,
    };
    if is_list {
        schema.entry("items").or_insert_with(|| json!({}));
    }
}

/// Converts a boolean exclusive bound of draft 4 to a number.
fn exclusive(schema: &mut Map<String, Value>, flag: &str, bound: &str) {
    let is_flagged = match schema.get(flag) {
        Some(Value::Bool(is_flagged)) => *is_flagged,
        _ => return,
    };
    schema.remove(flag);
    if is_flagged && let Some(value) = schema.remove(bound) {
        schema.insert(flag.to_owned(), value);
    }
}

fn is_valid(key: &str, value: &Value) -> bool {
    match key {
        _ if NUMBERS.contains(&key) => value.is_number(),
        _ if LISTS.contains(&key) => value.as_array().is_some_and(|list| !list.is_empty()),
        _ if NAMED.contains(&key) => value.is_object(),
        _ if ONE.contains(&key) => value.is_object() || value.is_boolean(),
        "required" => value.is_array(),
        "enum" => value.as_array().is_some_and(|list| !list.is_empty()),
        "$id" | "$ref" | "description" | "format" | "pattern" | "title" => value.is_string(),
        _ => true,
    }
}

/// Removes repeated names and other values from the required properties.
fn clean_required(schema: &mut Map<String, Value>) {
    if let Some(Value::Array(names)) = schema.get_mut("required") {
        let mut seen = std::collections::BTreeSet::new();
        names.retain(|name| name.as_str().is_some_and(|name| seen.insert(name.to_owned())));
    }
}

/// Removes the type if it, or one of several, does not exist: `any` allows every value.
fn types(schema: &mut Map<String, Value>) {
    let is_type = |value: &Value| TYPES.iter().any(|known| value == known);
    let is_kept = match schema.get("type") {
        Some(Value::Array(types)) => !types.is_empty() && types.iter().all(is_type),
        Some(one) => is_type(one),
        None => return,
    };
    if !is_kept {
        schema.remove("type");
    }
}

fn inside(schema: &mut Map<String, Value>) {
    for (key, value) in schema.iter_mut() {
        match value {
            Value::Object(inner) if ONE.contains(&key.as_str()) => modernise(inner),
            Value::Object(named) if NAMED.contains(&key.as_str()) => {
                named.values_mut().for_each(modernise_property);
            }
            Value::Array(list) if LISTS.contains(&key.as_str()) => {
                list.iter_mut().for_each(modernise_value);
            }
            _ => {}
        }
    }
}

/// Converts the schema of a property to an object, as some endpoints require.
fn modernise_property(value: &mut Value) {
    match value {
        Value::Object(schema) => modernise(schema),
        Value::Bool(false) => *value = json!({ "not": {} }),
        _ => *value = json!({}),
    }
}

fn modernise_value(value: &mut Value) {
    match value {
        Value::Object(schema) => modernise(schema),
        Value::Bool(_) => {}
        other => *other = Value::Bool(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(schema: Value, expected: Value) {
        let Value::Object(mut schema) = schema else { panic!("an object") };
        modernise(&mut schema);
        assert_eq!(Value::Object(schema), expected);
    }

    #[test]
    fn words_of_earlier_drafts_are_rewritten() {
        check(
            json!({ "$schema": "http://json-schema.org/draft-04/schema#", "id": "x", "type": "object",
                "properties": {
                    "id": { "type": "any", "required": true },
                    "n": { "type": "number", "minimum": 0, "exclusiveMinimum": true },
                    "m": { "maximum": 9, "exclusiveMaximum": false, "minLength": "2" },
                    "pair": { "type": "array", "items": [{ "type": ["string", "any"] }, {}], "additionalItems": false },
                    "odd": "string", "any": true, "none": false,
                }, "required": ["id", "id", 7] }),
            json!({ "type": "object",
                "properties": {
                    "id": {},
                    "n": { "type": "number", "exclusiveMinimum": 0 },
                    "m": { "maximum": 9 },
                    "pair": { "type": "array", "prefixItems": [{}, {}], "items": {} },
                    "odd": {}, "any": {}, "none": { "not": {} },
                }, "required": ["id"] }),
        );
    }

    #[test]
    fn examples_and_defaults_are_left_alone() {
        let schema = json!({ "type": "object", "default": { "id": "x", "$schema": 1 },
            "properties": { "a": { "enum": [{ "id": "y" }], "examples": [{ "required": true }] } } });
        check(schema.clone(), schema);
    }
}
