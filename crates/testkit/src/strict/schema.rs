//! Schemas of tools and answers.

use super::json::Node;

/// Returns whether a schema is valid by JSON Schema draft 2020-12.
pub(super) fn is_draft_2020_12(schema: Node<'_>) -> bool {
    jsonschema::draft202012::meta::is_valid(&schema.to_value())
}

/// Returns the first keyword at the top of a schema that combines or excludes alternatives.
pub(super) fn top_level_combinator(schema: Node<'_>, words: &[&str]) -> Option<String> {
    words.iter().find(|word| schema.get(word).exists()).map(|word| (*word).to_owned())
}

/// Returns the place of the first subschema for which `test` holds, in the format of OpenAI's errors.
pub(super) fn find_place(schema: Node<'_>, test: &dyn Fn(Node<'_>) -> bool) -> Option<String> {
    find_below(schema, &mut Vec::new(), test)
}

fn find_below(
    schema: Node<'_>,
    place: &mut Vec<String>,
    test: &dyn Fn(Node<'_>) -> bool,
) -> Option<String> {
    if test(schema) {
        return Some(match place.as_slice() {
            [one] => format!("('{one}',)"),
            steps => format!("('{}')", steps.join("', '")).replace("('')", "()"),
        });
    }
    for (steps, below) in subschemas(schema) {
        let depth = place.len();
        place.extend(steps);
        let found = find_below(below, place, test);
        place.truncate(depth);
        if found.is_some() {
            return found;
        }
    }
    None
}

/// Returns the schemas directly in a schema, each with the steps to it.
pub(super) fn subschemas(schema: Node<'_>) -> Vec<(Vec<String>, Node<'_>)> {
    let mut found = Vec::new();
    for word in ["properties", "$defs", "definitions", "patternProperties"] {
        for (name, below) in schema.get(word).fields() {
            found.push((vec![word.to_owned(), name.to_owned()], below));
        }
    }
    for word in ["items", "additionalProperties", "not"] {
        let below = schema.get(word);
        if below.is_object() {
            found.push((vec![word.to_owned()], below));
        }
    }
    for word in ["anyOf", "oneOf", "allOf", "prefixItems"] {
        for (index, below) in schema.get(word).items().enumerate() {
            found.push((vec![word.to_owned(), index.to_string()], below));
        }
    }
    found
}

/// Returns whether a schema is for values of this type, possibly among others.
pub(super) fn allows(schema: Node<'_>, name: &str) -> bool {
    let types = schema.get("type");
    types.is(name) || types.items().any(|each| each.is(name))
}
