//! Arguments that do not fit the schema of a tool.

use serde_json::{Value, json};

/// Returns one value of each of four JSON types, to find one that a property does not allow.
fn candidates() -> [Value; 4] {
    [json!("none"), json!(7), json!([]), json!({})]
}

/// Returns arguments with one defect each: no object, a required property left out, or a property of another type.
pub(super) fn misfits(schema: &Value, given: &Value) -> Vec<Value> {
    let mut misfits = vec![json!("none")];
    let Some(given) = given.as_object() else { return misfits };
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let mut without = given.clone();
        if without.remove(name).is_some() {
            misfits.push(without.into());
        }
    }
    for name in given.keys() {
        let allowed = &schema["properties"][name]["type"];
        let other =
            candidates().into_iter().find(|value| !allowed.is_null() && !fits(value, allowed));
        if let Some(other) = other {
            let mut of_other_type = given.clone();
            of_other_type.insert(name.clone(), other);
            misfits.push(of_other_type.into());
        }
    }
    misfits
}

/// Returns whether a value has one of the types of a schema: a name, or a list of names.
fn fits(value: &Value, allowed: &Value) -> bool {
    let is = |name: &str| match value {
        Value::String(_) => name == "string",
        Value::Number(_) => matches!(name, "integer" | "number"),
        Value::Array(_) => name == "array",
        Value::Object(_) => name == "object",
        Value::Bool(_) | Value::Null => true,
    };
    match allowed {
        Value::Array(names) => names.iter().filter_map(Value::as_str).any(is),
        name => name.as_str().is_none_or(is),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misfits_have_one_defect_each() {
        let schema = json!({
            "required": ["path", "lines"],
            "properties": {
                "path": { "type": "string" },
                "lines": { "type": ["integer", "string", "null"] },
                "any": { "description": "Anything." },
            },
        });
        let given = json!({ "any": 1, "lines": 3, "path": "a" });
        assert_eq!(
            misfits(&schema, &given),
            [
                json!("none"),
                json!({ "any": 1, "lines": 3 }),
                json!({ "any": 1, "path": "a" }),
                json!({ "any": 1, "lines": [], "path": "a" }),
                json!({ "any": 1, "lines": 3, "path": 7 }),
            ]
        );
    }
}
