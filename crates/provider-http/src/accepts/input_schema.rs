//! Tool input schemas in a form that every endpoint accepts.

use std::collections::{BTreeMap, BTreeSet};

use layer0::{JsonText, ToolSpec};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::Accepts;
use super::references::{find_referred, mend_references};
use super::schema_draft::modernise;

/// The longest property name that every endpoint accepts.
const MAX_KEY_CHARS: usize = 64;
/// The maximum depth of references and unions followed from the top of a schema.
const MAX_STEPS: usize = 16;
/// The maximum number of schemas merged at the top of one. Without it, a schema that refers to
/// itself twice would be followed 2^16 times.
const MAX_MERGED: usize = 1_000;
/// Keywords that Anthropic and OpenAI refuse at the top of an input schema:
/// <https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/implement-tool-use>,
/// <https://platform.openai.com/docs/guides/function-calling>.
const REFUSED_AT_TOP: [&str; 9] =
    ["allOf", "anyOf", "const", "else", "enum", "if", "not", "oneOf", "then"];

/// Property names shown to the model instead of a tool's own, and the own names behind them.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct KeyAliases(BTreeMap<String, String>);

impl KeyAliases {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the arguments of a call with the tool's own property names.
    pub(crate) fn restore(&self, arguments: &JsonText) -> JsonText {
        self.rename(arguments, |key| self.0.get(key).map(String::as_str))
    }

    /// Returns the arguments of an earlier call with the property names that the model sees.
    pub(crate) fn apply(&self, arguments: &JsonText) -> JsonText {
        self.rename(arguments, |key| self.find_alias(key))
    }

    /// Returns the name that the model sees for one of the tool's own.
    fn find_alias(&self, own: &str) -> Option<&str> {
        self.0.iter().find(|(_, known)| *known == own).map(|(alias, _)| alias.as_str())
    }

    fn rename<'k>(
        &'k self,
        arguments: &JsonText,
        name: impl Fn(&str) -> Option<&'k str>,
    ) -> JsonText {
        let Ok(members) = arguments.read::<BTreeMap<String, Box<RawValue>>>() else {
            return arguments.clone();
        };
        // An argument present under both names keeps both; the tool's own schema validates them.
        let other = |key: &str| name(key).filter(|other| !members.contains_key(*other));
        let renamed: BTreeMap<&str, &RawValue> =
            members.iter().map(|(key, value)| (other(key).unwrap_or(key), &**value)).collect();
        JsonText::from_value(&renamed).unwrap_or_else(|_| arguments.clone())
    }
}

/// Returns a tool whose schema every endpoint accepts: an object at the top, without unions there,
/// in JSON Schema 2020-12, and in the form of one endpoint where they differ.
///
/// Removed keywords only make the schema more permissive: the arguments of a call are validated
/// against the tool's own schema before it runs.
pub(crate) fn fit_tool(tool: &ToolSpec, accepts: Accepts) -> (ToolSpec, KeyAliases) {
    let own = tool.schema.value();
    let Value::Object(mut schema) = own.clone() else {
        return (tool.clone(), KeyAliases::default());
    };
    modernise(&mut schema);
    let alternatives = flatten_top(&mut schema);
    if accepts.no_empty_properties {
        remove_empty_properties(&mut schema);
    }
    let aliases = if accepts.plain_keys { rename_keys(&mut schema) } else { KeyAliases::default() };
    tell_alternatives(&mut schema, &alternatives, &aliases);
    mend_references(&mut schema, &own);
    let fitted = Value::Object(schema);
    if fitted == own {
        return (tool.clone(), aliases);
    }
    // A schema that cannot be written is sent unchanged: a tree that is too deep would become a string.
    let Ok(schema) = JsonText::from_value(&fitted) else {
        return (tool.clone(), KeyAliases::default());
    };
    let mut tool = tool.clone();
    tool.schema = schema;
    (tool, aliases)
}

/// Turns the top of a schema into one object with the properties of all its branches; returns the
/// required properties of each branch.
fn flatten_top(schema: &mut Map<String, Value>) -> Vec<BTreeSet<String>> {
    let mut alternatives = Vec::new();
    if schema.contains_key("$ref") || REFUSED_AT_TOP.iter().any(|key| schema.contains_key(*key)) {
        let root = Value::Object(schema.clone());
        let top = Merger { root: &root, left: MAX_MERGED }.merge(&root, MAX_STEPS);
        for key in
            REFUSED_AT_TOP.iter().chain(&["$ref", "additionalProperties", "properties", "required"])
        {
            schema.remove(*key);
        }
        if !top.required.is_empty() {
            schema.insert("required".to_owned(), top.required.into_iter().collect());
        }
        schema.insert("properties".to_owned(), Value::Object(top.properties));
        alternatives = top.alternatives;
    }
    schema.insert("type".to_owned(), "object".into());
    // OpenAI refuses an object without them, also for a tool without arguments.
    if !schema.get("properties").is_some_and(Value::is_object) {
        schema.insert("properties".to_owned(), json!({}));
    }
    alternatives
}

fn remove_empty_properties(schema: &mut Map<String, Value>) {
    let is_empty = |properties: &Value| properties.as_object().is_some_and(Map::is_empty);
    if schema.get("properties").is_some_and(is_empty) {
        schema.remove("properties");
    }
}

/// Adds to the description which properties belong together, by the names that the model sees.
fn tell_alternatives(
    schema: &mut Map<String, Value>,
    alternatives: &[BTreeSet<String>],
    aliases: &KeyAliases,
) {
    let shown = |key: &String| format!("`{}`", aliases.find_alias(key).unwrap_or(key));
    let sets: Vec<String> = alternatives
        .iter()
        .filter(|set| !set.is_empty())
        .map(|set| set.iter().map(shown).collect::<Vec<_>>().join(" and "))
        .collect();
    if sets.len() > 1 {
        let told = schema.get("description").and_then(Value::as_str).unwrap_or_default();
        let told = format!("{told} Give {}.", sets.join(", or ")).trim().to_owned();
        schema.insert("description".to_owned(), told.into());
    }
}

/// An object schema with its branches merged.
#[derive(Default)]
struct Merged {
    properties: Map<String, Value>,
    required: BTreeSet<String>,
    /// The required properties of each branch of a union, beyond those that all branches require.
    alternatives: Vec<BTreeSet<String>>,
}

impl Merged {
    fn add_properties(&mut self, properties: Map<String, Value>) {
        for (key, schema) in properties {
            match self.properties.get_mut(&key) {
                None => {
                    self.properties.insert(key, schema);
                }
                Some(known) => add_alternative(known, schema),
            }
        }
    }
}

/// Allows the values of either schema.
///
/// Alternatives are kept in one flat list: nested, those of a union of many kinds would be too deep
/// for any endpoint.
fn add_alternative(known: &mut Value, schema: Value) {
    if *known == schema {
        return;
    }
    let alternatives = known.as_object_mut().filter(|fields| fields.len() == 1);
    match alternatives.and_then(|fields| fields.get_mut("anyOf")?.as_array_mut()) {
        Some(alternatives) if alternatives.contains(&schema) => {}
        Some(alternatives) => alternatives.push(schema),
        None => *known = json!({ "anyOf": [known.take(), schema] }),
    }
}

/// Follows the references and unions at the top of a schema.
struct Merger<'s> {
    root: &'s Value,
    /// The number of schemas that may still be merged. Leaving the rest out only makes the schema
    /// more permissive.
    left: usize,
}

impl Merger<'_> {
    fn merge(&mut self, schema: &Value, steps: usize) -> Merged {
        let mut merged_here = Merged::default();
        let (Some(steps), Some(left), Some(schema)) =
            (steps.checked_sub(1), self.left.checked_sub(1), schema.as_object())
        else {
            return merged_here;
        };
        self.left = left;
        if let Some(Value::Object(properties)) = schema.get("properties") {
            merged_here.add_properties(properties.clone());
        }
        merged_here.required = texts(schema.get("required"));
        let referred = schema.get("$ref").and_then(Value::as_str);
        let referred = referred.and_then(|reference| find_referred(self.root, reference));
        let all = schema.get("allOf").and_then(Value::as_array).into_iter().flatten();
        for part in referred.into_iter().chain(all) {
            let part = self.merge(part, steps);
            merged_here.add_properties(part.properties);
            merged_here.required.extend(part.required);
            merged_here.alternatives.extend(part.alternatives);
        }
        for part in ["then", "else"].iter().filter_map(|key| schema.get(*key)) {
            merged_here.add_properties(self.merge(part, steps).properties);
        }
        for union in ["anyOf", "oneOf"].iter().filter_map(|key| schema.get(*key)?.as_array()) {
            let branches = union.iter().map(|branch| self.merge(branch, steps)).collect();
            add_union(&mut merged_here, branches);
        }
        merged_here
    }
}

/// Adds the branches of a union; properties that all of them require are required.
fn add_union(whole: &mut Merged, branches: Vec<Merged>) {
    let required: Vec<BTreeSet<String>> = branches.iter().map(|it| it.required.clone()).collect();
    let common = required
        .iter()
        .skip(1)
        .fold(required.first().cloned().unwrap_or_default(), |common, set| {
            common.intersection(set).cloned().collect()
        });
    whole
        .alternatives
        .extend(required.iter().map(|set| set.difference(&common).cloned().collect()));
    whole.required.extend(common);
    branches.into_iter().for_each(|branch| whole.add_properties(branch.properties));
}

fn texts(list: Option<&Value>) -> BTreeSet<String> {
    let list = list.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

/// Renames the properties at the top to plain names.
fn rename_keys(schema: &mut Map<String, Value>) -> KeyAliases {
    let Some(Value::Object(properties)) = schema.get_mut("properties") else {
        return KeyAliases::default();
    };
    if properties.keys().all(|key| is_plain(key)) {
        return KeyAliases::default();
    }
    let mut aliases = KeyAliases::default();
    let mut taken: BTreeSet<String> =
        properties.keys().filter(|key| is_plain(key)).cloned().collect();
    let mut renamed = Map::new();
    for (key, schema) in std::mem::take(properties) {
        let alias = if is_plain(&key) { key.clone() } else { plain_name(&key, &taken) };
        if alias != key {
            taken.insert(alias.clone());
            aliases.0.insert(alias.clone(), key);
        }
        renamed.insert(alias, schema);
    }
    *properties = renamed;
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        for name in required {
            let alias = name.as_str().and_then(|own| aliases.find_alias(own)).map(str::to_owned);
            *name = alias.map_or_else(|| name.take(), Value::String);
        }
    }
    // These keywords refer to names that the model does not see.
    for key in ["dependentRequired", "dependentSchemas", "propertyNames"] {
        schema.remove(key);
    }
    aliases
}

fn is_plain(key: &str) -> bool {
    (1..=MAX_KEY_CHARS).contains(&key.len()) && key.chars().all(is_plain_char)
}

const fn is_plain_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-')
}

/// Returns a plain name that is not taken.
fn plain_name(key: &str, taken: &BTreeSet<String>) -> String {
    let plain: String = key
        .chars()
        .take(MAX_KEY_CHARS - 4)
        .map(|c| if is_plain_char(c) { c } else { '_' })
        .collect();
    let numbered = (2_u32..).map(|nth| format!("{plain}_{nth}"));
    let mut names = std::iter::once(plain.clone()).chain(numbered);
    names.find(|name| !name.is_empty() && !taken.contains(name)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit(schema: Value) -> (Value, KeyAliases) {
        let accepts = Accepts::everything().plain_keys();
        let (tool, aliases) = fit_tool(&ToolSpec::new("t", "d", schema), accepts);
        (tool.schema.value(), aliases)
    }

    fn branch(key: &str) -> Value {
        json!({ "type": "object", "properties": { key: { "type": "string" } }, "required": [key] })
    }

    /// Spec: Q4
    #[test]
    fn unions_at_the_top_become_one_object() {
        let both = json!({ "a": { "type": "string" }, "b": { "type": "string" } });
        for union in ["anyOf", "oneOf"] {
            let (sent, _) = fit(json!({ "type": "object", union: [branch("a"), branch("b")] }));
            let expected = json!({
                "type": "object", "properties": both, "description": "Give `a`, or `b`.",
            });
            assert_eq!(sent, expected);
        }
        let (sent, _) = fit(
            json!({ "allOf": [branch("a"), { "$ref": "#/$defs/b" }], "$defs": { "b": branch("b") } }),
        );
        assert_eq!(sent["required"], json!(["a", "b"]));
        assert_eq!(sent["properties"], both);
        let (sent, _) = fit(json!({ "$ref": "#/$defs/b", "$defs": { "b": branch("b") } }));
        assert_eq!(sent["required"], json!(["b"]));
        let (sent, _) = fit(json!({ "$ref": "#", "not": {}, "enum": [1] }));
        assert_eq!(sent, json!({ "type": "object", "properties": {} }));
    }

    /// Spec: Q4. OpenAI refuses an object schema without properties.
    #[test]
    fn tools_without_arguments_have_no_properties() {
        for schema in [json!({}), json!({ "type": "object" }), json!({ "properties": null })] {
            assert_eq!(fit(schema).0, json!({ "type": "object", "properties": {} }));
        }
        let closed = json!({ "type": "object", "properties": {}, "additionalProperties": false });
        assert_eq!(fit(json!({ "type": "object", "additionalProperties": false })).0, closed);
        let accepts = Accepts::everything().no_empty_properties();
        let gemini = fit_tool(&ToolSpec::new("t", "d", closed), accepts).0.schema.value();
        assert_eq!(gemini, json!({ "type": "object", "additionalProperties": false }));
    }

    #[test]
    fn branches_that_differ_are_both_allowed() {
        let one = json!({ "properties": { "a": { "type": "string" } } });
        let other = json!({ "properties": { "a": { "type": "integer" } } });
        let (sent, _) = fit(json!({ "type": "object", "anyOf": [one, other] }));
        assert_eq!(
            sent["properties"]["a"],
            json!({ "anyOf": [{ "type": "string" }, { "type": "integer" }] })
        );
    }

    /// Nested, the alternatives of 50 kinds would be too deep to be written.
    #[test]
    fn alternatives_of_many_kinds_are_one_list() {
        let branch = |kind: u32| {
            json!({ "type": "object", "properties": { "kind": { "const": format!("k{kind}") },
                "x": { "type": "string" } }, "required": ["kind"] })
        };
        let branches: Vec<Value> = (0..200).map(branch).collect();
        let (sent, _) = fit(json!({ "oneOf": branches }));
        assert_eq!(sent["properties"]["kind"]["anyOf"].as_array().unwrap().len(), 200);
        assert_eq!(sent["properties"]["x"], json!({ "type": "string" }));
        assert_eq!(sent["required"], json!(["kind"]));
    }

    /// Followed at each occurrence, the references of this schema would take too long.
    #[test]
    fn a_schema_that_holds_itself_ends() {
        let itself = vec![json!({ "$ref": "#" }); 8];
        let schema = json!({ "allOf": itself, "anyOf": itself, "properties": { "a": {} } });
        let mut merger = Merger { root: &schema, left: MAX_MERGED };
        assert!(merger.merge(&schema, MAX_STEPS).properties.contains_key("a"));
        assert_eq!(merger.left, 0);
        assert_eq!(fit(schema.clone()).0["properties"], json!({ "a": {} }));
    }

    #[test]
    fn renamed_keys_are_named_everywhere() {
        let (sent, _) = fit(json!({ "type": "object",
            "propertyNames": { "enum": ["user id", "größe"] },
            "dependentRequired": { "user id": ["größe"] },
            "anyOf": [branch("user id"), branch("größe")] }));
        assert_eq!(sent["description"], "Give `user_id`, or `gr__e`.");
        assert_eq!((sent.get("propertyNames"), sent.get("dependentRequired")), (None, None));
    }

    /// Spec: Q4
    #[test]
    fn references_lead_to_what_they_led_to() {
        let text = json!({ "type": "string" });
        let (sent, _) = fit(json!({ "type": "object", "properties": {
            "user id": text,
            "pair": { "type": "array", "items": [text] },
            "a": { "$ref": "#/properties/user%20id" },
            "b": { "$ref": "#/properties/pair/items/0", "description": "b" },
            "c": { "$ref": "#/$defs/no" },
            "d": { "$ref": "https://example.com/x.json" },
            "e": { "$ref": "#/$defs/yes" },
        }, "$defs": { "yes": { "items": { "$ref": "#/properties/user%20id" } } } }));
        for (key, expected) in [
            ("a", json!({ "$ref": "#/$defs/ref_2" })),
            ("b", json!({ "$ref": "#/$defs/ref_1", "description": "b" })),
            ("c", json!({})),
            ("d", json!({})),
            ("e", json!({ "$ref": "#/$defs/yes" })),
        ] {
            assert_eq!(sent["properties"][key], expected, "{key}");
        }
        let defs = json!({ "yes": { "items": { "$ref": "#/$defs/ref_2" } }, "ref_1": text, "ref_2": text });
        assert_eq!(sent["$defs"], defs);
        // A schema as zod writes it: a branch refers to a property of another.
        let (sent, _) = fit(json!({ "anyOf": [branch("a"), { "type": "object", "properties": {
            "b": { "$ref": "#/anyOf/0/properties/a" } } }] }));
        assert_eq!(sent["properties"]["b"], json!({ "$ref": "#/$defs/ref_1" }));
        assert_eq!(sent["$defs"]["ref_1"], text);
    }

    #[test]
    fn a_plain_schema_stays_as_it_is() {
        let schema =
            json!({ "type": "object", "properties": { "a": { "anyOf": [{}, {}] } }, "x-own": 1 });
        let tool = ToolSpec::new("t", "d", schema);
        assert_eq!(fit_tool(&tool, Accepts::everything().plain_keys()).0, tool);
    }

    #[test]
    fn odd_keys_are_renamed_there_and_back() {
        let long = "k".repeat(80);
        let (sent, aliases) = fit(json!({
            "type": "object", "required": ["user id", "a"],
            "properties": { "user id": {}, "user_id": {}, "größe": {}, "a": {}, &*long: {}, "": {} },
        }));
        let keys: Vec<&String> = sent["properties"].as_object().unwrap().keys().collect();
        assert!(keys.iter().all(|key| is_plain(key)) && keys.len() == 6, "{keys:?}");
        assert_eq!(sent["required"], json!(["user_id_2", "a"]));
        let own = JsonText::parse(r#"{"größe":3.10,"user id":1,"user_id":2}"#).unwrap();
        let shown = aliases.apply(&own);
        assert_eq!(shown.get(), r#"{"gr__e":3.10,"user_id":2,"user_id_2":1}"#);
        assert_eq!(aliases.restore(&shown), own);
        let both = JsonText::parse(r#"{"user id":1,"user_id_2":3}"#).unwrap();
        assert_eq!(aliases.restore(&both), both);
        assert_eq!(aliases.restore(&JsonText::string("no object")), JsonText::string("no object"));
    }
}
