//! What a schema stands for with its references followed: a short text can stand for more than can be checked.

use std::collections::HashMap;

use serde_json::Value;

/// How many schemas one may stand for. Checking a value may take as many steps, and more where it is nested.
const MAX_SCHEMAS: u64 = 100_000;
/// How many schemas may stand inside of one another, references followed.
const MAX_DEPTH: usize = 400;

/// The keywords whose schemas are for the same value, and not for a part of it.
const IN_PLACE: [&str; 9] =
    ["$ref", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"];
/// The keywords whose values are no schemas, or are ones only where they are referred to.
const NO_SCHEMAS: [&str; 7] =
    ["$defs", "definitions", "const", "default", "enum", "examples", "required"];

/// Says why a schema stands for too much.
pub(super) fn check(schema: &Value) -> Result<(), String> {
    Expansion { root: schema, counts: HashMap::new(), path: Vec::new() }
        .count(schema, false)
        .map(drop)
}

struct Expansion<'s> {
    root: &'s Value,
    /// What was counted already, by where it stands.
    counts: HashMap<*const Value, u64>,
    /// The schemas that lead to this one, and whether each is for the same value as the one before it.
    path: Vec<(*const Value, bool)>,
}

impl<'s> Expansion<'s> {
    fn count(&mut self, schema: &'s Value, is_in_place: bool) -> Result<u64, String> {
        let place = std::ptr::from_ref(schema);
        if let Some(start) = self.path.iter().position(|(known, _)| *known == place) {
            // It goes on for as long as the value does, unless it never leaves the value.
            let is_endless = is_in_place
                && self.path.iter().skip(start + 1).all(|(_, is_in_place)| *is_in_place);
            return match is_endless {
                true => Err("it refers to itself without an end".to_owned()),
                false => Ok(1),
            };
        }
        if let Some(count) = self.counts.get(&place) {
            return Ok(*count);
        }
        if self.path.len() >= MAX_DEPTH {
            return Err(format!("it leads through more than {MAX_DEPTH} schemas"));
        }
        self.path.push((place, is_in_place));
        let counted = self.count_parts(schema);
        self.path.pop();
        let count = counted?;
        if count > MAX_SCHEMAS {
            return Err(format!("it stands for more than {MAX_SCHEMAS} schemas"));
        }
        self.counts.insert(place, count);
        Ok(count)
    }

    fn count_parts(&mut self, schema: &'s Value) -> Result<u64, String> {
        let mut count = 1_u64;
        match schema {
            Value::Object(fields) => {
                for (keyword, value) in fields {
                    let is_in_place = IN_PLACE.contains(&keyword.as_str());
                    let part = match value {
                        Value::String(target) if keyword == "$ref" => self.referred(target),
                        Value::Object(_) | Value::Array(_)
                            if !NO_SCHEMAS.contains(&keyword.as_str()) =>
                        {
                            Some(value)
                        }
                        _ => None,
                    };
                    if let Some(part) = part {
                        count = count.saturating_add(self.count(part, is_in_place)?);
                    }
                }
            }
            // The schemas of a list are for what the list is for.
            Value::Array(parts) => {
                for part in parts.iter().filter(|part| part.is_object() || part.is_array()) {
                    count = count.saturating_add(self.count(part, true)?);
                }
            }
            _ => {}
        }
        Ok(count)
    }

    /// Finds what a reference leads to inside of the schema.
    fn referred(&self, target: &str) -> Option<&'s Value> {
        self.root.pointer(target.strip_prefix('#')?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A schema of which each definition refers twice to the next.
    fn doubling(many: usize) -> Value {
        let mut definitions = serde_json::Map::new();
        for number in 0..many {
            let next = json!({ "$ref": format!("#/$defs/a{}", number + 1) });
            definitions.insert(format!("a{number}"), json!({ "anyOf": [next, next] }));
        }
        definitions.insert(format!("a{many}"), json!({ "type": "integer" }));
        json!({ "properties": { "x": { "$ref": "#/$defs/a0" } }, "$defs": definitions })
    }

    #[test]
    fn a_short_schema_for_too_much_is_refused() {
        assert_eq!(check(&doubling(10)), Ok(()));
        let refused = check(&doubling(40)).unwrap_err();
        assert_eq!(refused, "it stands for more than 100000 schemas");
        let mut chain = serde_json::Map::new();
        for number in 0..5_000 {
            chain.insert(
                format!("a{number}"),
                json!({ "$ref": format!("#/$defs/a{}", number + 1) }),
            );
        }
        let refused = check(&json!({ "$ref": "#/$defs/a0", "$defs": chain })).unwrap_err();
        assert_eq!(refused, "it leads through more than 400 schemas");
    }

    #[test]
    fn a_schema_refers_to_itself_by_its_parts() {
        let tree = json!({ "properties": { "children": { "items": { "$ref": "#" } } } });
        let list = json!({ "anyOf": [{ "type": "null" }, { "items": { "$ref": "#" } }] });
        for schema in [tree, list] {
            assert_eq!(check(&schema), Ok(()), "{schema}");
        }
        for schema in [
            json!({ "$ref": "#" }),
            json!({ "anyOf": [{ "type": "null" }, { "$ref": "#" }] }),
            json!({ "$defs": { "a": { "not": { "$ref": "#/$defs/b" } }, "b": { "$ref": "#/$defs/a" } },
                    "properties": { "x": { "$ref": "#/$defs/a" } } }),
        ] {
            let refused = check(&schema);
            assert_eq!(refused, Err("it refers to itself without an end".to_owned()), "{schema}");
        }
    }
}
