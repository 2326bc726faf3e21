//! The parts of JSON Schema that a protocol supports.

use std::collections::BTreeSet;

use layer0::JsonText;
use serde_json::{Map, Value};

/// Formats of strings that providers enforce.
const FORMATS: [&str; 10] =
    ["date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"];

/// Keywords whose value is a schema, a list of schemas, or schemas by name.
const ONE: [&str; 2] = ["additionalProperties", "items"];
const LISTS: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
const NAMED: [&str; 3] = ["$defs", "definitions", "properties"];

/// The part of JSON Schema that a protocol supports.
///
/// Other keywords are removed, which only makes the schema more permissive: the answer is validated
/// against the whole schema once it is received.
///
/// ```
/// use backstop_provider_http::Subset;
/// use serde_json::json;
///
/// const SUBSET: Subset = Subset::new(&["type", "properties", "required"]).with_closed_objects();
/// let schema = json!({ "type": "object", "properties": { "n": { "type": "integer", "minimum": 1 } } });
/// let sent = SUBSET.fit(&schema).unwrap().value();
/// assert_eq!(sent["properties"]["n"], json!({ "type": "integer" }));
/// assert_eq!(sent["additionalProperties"], false);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Subset {
    keywords: &'static [&'static str],
    is_closed: bool,
    is_complete: bool,
}

impl Subset {
    /// Creates a subset of these keywords.
    #[must_use]
    pub const fn new(keywords: &'static [&'static str]) -> Self {
        Self { keywords, is_closed: false, is_complete: false }
    }

    /// Requires objects without properties other than those they name, and schemas that do not
    /// contain themselves. An object that may have others is closed, as is allowed for an answer
    /// too.
    #[must_use]
    pub const fn with_closed_objects(mut self) -> Self {
        self.is_closed = true;
        self
    }

    /// Requires objects with all of the properties they name.
    #[must_use]
    pub const fn complete(mut self) -> Self {
        self.is_complete = true;
        self
    }

    /// Returns the supported part of the schema of an object; `None` if the protocol cannot express
    /// the schema.
    #[must_use]
    pub fn fit(&self, schema: &Value) -> Option<JsonText> {
        if schema.get("type")? != "object" || (self.is_closed && contains_itself(schema)) {
            return None;
        }
        self.part(schema).map(JsonText::from)
    }

    fn part(&self, schema: &Value) -> Option<Value> {
        let Value::Object(fields) = schema else {
            // Allows anything, or nothing.
            return (!self.is_closed).then(|| schema.clone());
        };
        if self.is_closed && fields.is_empty() {
            return None;
        }
        let mut part = Map::new();
        for (key, value) in fields {
            let is_taken = self.keywords.contains(&key.as_str());
            if key == "format" {
                if is_taken && FORMATS.iter().any(|format| value == format) {
                    part.insert(key.clone(), value.clone());
                }
            } else if is_taken {
                part.insert(key.clone(), self.inside(key, value)?);
            }
        }
        if self.is_closed && is_object(fields) {
            self.close(fields, &mut part)?;
        }
        Some(Value::Object(part))
    }

    fn inside(&self, key: &str, value: &Value) -> Option<Value> {
        match value {
            Value::Object(named) if NAMED.contains(&key) => {
                let parts =
                    named.iter().map(|(name, schema)| Some((name.clone(), self.part(schema)?)));
                parts.collect::<Option<Map<_, _>>>().map(Value::Object)
            }
            Value::Array(list) if LISTS.contains(&key) => {
                list.iter().map(|schema| self.part(schema)).collect()
            }
            Value::Object(_) if ONE.contains(&key) => self.part(value),
            _ => Some(value.clone()),
        }
    }

    fn close(&self, fields: &Map<String, Value>, part: &mut Map<String, Value>) -> Option<()> {
        let properties = fields.get("properties").and_then(Value::as_object)?;
        let others = fields.get("additionalProperties");
        if others.is_some_and(Value::is_object) {
            return None;
        }
        if self.is_complete {
            let required = fields.get("required").and_then(Value::as_array);
            let required = |name: &String| required?.iter().find(|it| *it == name);
            properties.keys().map(required).collect::<Option<Vec<_>>>()?;
        }
        part.insert("additionalProperties".to_owned(), Value::Bool(false));
        Some(())
    }
}

fn is_object(fields: &Map<String, Value>) -> bool {
    match fields.get("type") {
        Some(Value::Array(types)) => types.iter().any(|it| it == "object"),
        Some(one) => one == "object",
        None => fields.contains_key("properties"),
    }
}

/// Returns whether a schema refers to itself, or to something outside. Each definition is followed
/// once, however often it is referred to.
fn contains_itself(root: &Value) -> bool {
    References { root, open: BTreeSet::new(), done: BTreeSet::new() }.has_circle(root)
}

/// The references of a schema that are being followed, and those that do not lead back.
struct References<'s> {
    root: &'s Value,
    open: BTreeSet<&'s str>,
    done: BTreeSet<&'s str>,
}

impl<'s> References<'s> {
    fn has_circle(&mut self, at: &'s Value) -> bool {
        match at {
            Value::Array(items) => items.iter().any(|item| self.has_circle(item)),
            Value::Object(fields) => {
                let target = fields.get("$ref").and_then(Value::as_str);
                target.is_some_and(|target| self.leads_back(target))
                    || fields
                        .iter()
                        // Definitions are checked where they are referred to.
                        .filter(|(key, _)| !["$defs", "definitions"].contains(&key.as_str()))
                        .any(|(_, field)| self.has_circle(field))
            }
            _ => false,
        }
    }

    fn leads_back(&mut self, target: &'s str) -> bool {
        if self.done.contains(target) {
            return false;
        }
        let pointer = target.strip_prefix('#').filter(|pointer| !pointer.is_empty());
        let Some(inner) = pointer.and_then(|pointer| self.root.pointer(pointer)) else {
            return true;
        };
        if !self.open.insert(target) || self.has_circle(inner) {
            return true;
        }
        self.open.remove(target);
        self.done.insert(target);
        false
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const KEYWORDS: &[&str] = &[
        "$defs",
        "$ref",
        "additionalProperties",
        "anyOf",
        "format",
        "items",
        "properties",
        "required",
        "type",
    ];
    const CLOSED: Subset = Subset::new(KEYWORDS).with_closed_objects();

    #[track_caller]
    fn check(subset: Subset, schema: Value, expected: Option<Value>) {
        assert_eq!(subset.fit(&schema), expected.map(JsonText::from));
    }

    #[test]
    fn keywords_a_protocol_lacks_are_left_out() {
        let schema = json!({ "$schema": "x", "type": "object", "required": ["a"], "properties": {
            "a": { "type": "integer", "format": "uint8", "minimum": 0 },
            "d": { "type": "string", "format": "date" },
        }});
        let properties =
            json!({ "a": { "type": "integer" }, "d": { "type": "string", "format": "date" } });
        let open = json!({ "type": "object", "required": ["a"], "properties": properties });
        check(Subset::new(KEYWORDS), schema.clone(), Some(open.clone()));
        let mut closed = open;
        closed["additionalProperties"] = json!(false);
        check(CLOSED, schema.clone(), Some(closed));
        // `d` may be missing.
        check(CLOSED.complete(), schema, None);
    }

    /// Followed at each reference, 60 levels would take too long.
    #[test]
    fn definitions_that_refer_twice_are_followed_once() {
        let both = |level: usize| {
            let next = json!({ "$ref": format!("#/$defs/d{}", level + 1) });
            json!({ "type": "object", "properties": { "a": next, "b": next } })
        };
        let mut defs: Map<String, Value> =
            (0..60).map(|level| (format!("d{level}"), both(level))).collect();
        defs.insert("d60".to_owned(), json!({ "type": "string" }));
        let schema = json!({ "type": "object", "properties": { "a": { "$ref": "#/$defs/d0" } }, "$defs": defs });
        assert!(CLOSED.fit(&schema).is_some());
        let mut circle = schema;
        circle["$defs"]["d60"] = json!({ "$ref": "#/$defs/d3" });
        assert!(CLOSED.fit(&circle).is_none());
    }

    #[test]
    fn what_cannot_be_said_is_not_sent() {
        let with = |schema: Value| json!({ "type": "object", "properties": { "a": schema } });
        check(CLOSED, json!({ "type": "array" }), None);
        check(CLOSED, json!({ "type": "object" }), None);
        check(CLOSED, with(json!({})), None);
        check(CLOSED, with(json!(true)), None);
        let map = json!({ "type": "object", "additionalProperties": { "type": "string" } });
        check(CLOSED, with(map), None);
        check(CLOSED, with(json!({ "$ref": "#" })), None);
        check(CLOSED, with(json!({ "$ref": "https://example.com" })), None);
        let node = json!({ "type": "object", "properties": { "next": { "$ref": "#/$defs/n" } } });
        let mut list = with(json!({ "$ref": "#/$defs/n" }));
        list["$defs"] = json!({ "n": node });
        check(CLOSED, list, None);
        let mut twice = json!({ "type": "object", "properties": {
            "a": { "$ref": "#/$defs/n" }, "b": { "$ref": "#/$defs/n" },
        }});
        twice["$defs"] = json!({ "n": { "type": "string" } });
        assert!(CLOSED.fit(&twice).is_some());
    }
}
