//! The size of a schema with its references followed.

use std::collections::HashMap;

use super::outline::Outline;

/// Maximum size of a schema, in schemas. Checking a value may take as many steps, and more if the value is nested.
const MAX_SCHEMAS: u64 = 100_000;
/// Size of a pattern, in schemas: it takes as long to compile.
const PATTERN: u64 = 20;
/// Additional size of each schema that is checked once more for uncovered values.
const REST: u64 = 16;
/// Maximum nesting depth of schemas, with references followed.
const MAX_DEPTH: usize = 200;

/// The size of a part.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) schemas: u64,
    /// Number of its schemas for the same value.
    in_place: u64,
    /// Nesting depth of its schemas.
    depth: usize,
    /// Whether it refers to itself.
    pub(super) recurs: bool,
}

impl Size {
    const ONE: Self = Self { schemas: 1, in_place: 1, depth: 1, recurs: false };

    /// Measures a whole schema.
    ///
    /// # Errors
    ///
    /// The reason that it is too large.
    pub(super) fn measure(outline: &Outline) -> Result<Self, String> {
        Sizes { outline, known: HashMap::new(), path: Vec::new() }.measure(0, true)
    }
}

/// Measures the parts of an outline.
struct Sizes<'o> {
    outline: &'o Outline,
    known: HashMap<usize, Size>,
    /// The parts that lead to this one, each with whether it applies to the same value as the one before.
    path: Vec<(usize, bool)>,
}

impl Sizes<'_> {
    fn measure(&mut self, index: usize, is_in_place: bool) -> Result<Size, String> {
        if let Some(start) = self.path.iter().position(|(known, _)| *known == index) {
            // The recursion ends with the value, unless it never leaves the same value.
            let is_endless = is_in_place
                && self.path.iter().skip(start + 1).all(|(_, is_in_place)| *is_in_place);
            return match is_endless {
                true => Err("it refers to itself without an end".to_owned()),
                false => Ok(Size { recurs: true, ..Size::ONE }),
            };
        }
        if let Some(size) = self.known.get(&index) {
            return Ok(*size);
        }
        let too_deep = || format!("it leads through more than {MAX_DEPTH} schemas");
        if self.path.len() >= MAX_DEPTH {
            return Err(too_deep());
        }
        self.path.push((index, is_in_place));
        let part = &self.outline.parts[index];
        let in_place = part.in_place.iter().map(|step| (step.to, true));
        let inside = part.named.iter().map(|(_, to)| *to).chain(part.each.iter().map(|it| it.to));
        let patterns = PATTERN.saturating_mul(part.patterns);
        let mut size = Size { schemas: 1 + patterns, ..Size::ONE };
        for (to, is_in_place) in in_place.chain(inside.map(|to| (to, false))) {
            let found = self.measure(to, is_in_place)?;
            size.schemas = size.schemas.saturating_add(found.schemas);
            if is_in_place {
                size.in_place = size.in_place.saturating_add(found.in_place);
            }
            size.depth = size.depth.max(found.depth + 1);
            size.recurs |= found.recurs;
        }
        if part.is_for_rest {
            size.schemas = size.schemas.saturating_add(REST.saturating_mul(size.in_place));
        }
        self.path.pop();
        if size.schemas > MAX_SCHEMAS {
            return Err(format!("it stands for more than {MAX_SCHEMAS} schemas"));
        }
        if size.depth > MAX_DEPTH {
            return Err(too_deep());
        }
        self.known.insert(index, size);
        Ok(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, Value, json};

    fn size(schema: &Value) -> Result<Size, String> {
        Size::measure(&Outline::new(schema)?)
    }

    fn check(schema: &Value) -> Result<(), String> {
        size(schema).map(drop)
    }

    /// Returns a schema whose definitions each refer twice to the next one.
    fn doubling(many: usize) -> Value {
        let mut definitions = Map::new();
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
        let mut chain = Map::new();
        for number in 0..5_000 {
            chain.insert(
                format!("a{number}"),
                json!({ "$ref": format!("#/$defs/a{}", number + 1) }),
            );
        }
        let refused = check(&json!({ "$ref": "#/$defs/a0", "$defs": chain })).unwrap_err();
        assert_eq!(refused, "it leads through more than 200 schemas");
        // Also where it is looked into from its end.
        let parts: Value = (0..50)
            .rev()
            .map(|number| {
                (
                    format!("p{:02}", 50 - number),
                    json!({ "$ref": format!("#/$defs/a{}", number * 100) }),
                )
            })
            .collect();
        let refused = check(&json!({ "properties": parts, "$defs": chain })).unwrap_err();
        assert_eq!(refused, "it leads through more than 200 schemas");
    }

    /// A few bytes of a schema can take long to compile.
    #[test]
    fn schema_that_takes_long_to_compile_is_refused() {
        let rest = |many: usize| {
            let mut schema = doubling(many);
            for definition in schema["$defs"].as_object_mut().unwrap().values_mut() {
                definition["unevaluatedProperties"] = json!(false);
            }
            check(&schema)
        };
        assert_eq!(rest(6), Ok(()));
        assert!(rest(12).unwrap_err().starts_with("it stands for more than"));
        let patterns = |many: usize| -> Value {
            (0..many)
                .map(|number| (format!("^(\\w{{1,100}}{number}){{1,9}}$"), json!({})))
                .collect()
        };
        assert_eq!(check(&json!({ "patternProperties": patterns(100) })), Ok(()));
        assert!(check(&json!({ "patternProperties": patterns(10_000) })).is_err());
        let documents = |many: usize| -> Value {
            (0..many).map(|number| (format!("d{number}"), json!({ "$id": "d" }))).collect()
        };
        assert_eq!(check(&json!({ "$defs": documents(50) })), Ok(()));
        let refused = check(&json!({ "$defs": documents(500) })).unwrap_err();
        assert_eq!(refused, "it names more than 1000 of its parts, or 100 with an `$id`");
    }

    #[test]
    fn a_schema_refers_to_itself_by_its_parts() {
        let tree = json!({ "properties": { "children": { "items": { "$ref": "#" } } } });
        let list = json!({ "anyOf": [{ "type": "null" }, { "items": { "$ref": "#" } }] });
        for schema in [tree, list] {
            assert_eq!(check(&schema), Ok(()), "{schema}");
            assert!(size(&schema).unwrap().recurs, "{schema}");
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

    #[test]
    fn references_of_every_form_are_followed() {
        let next = |reference: Value| json!({ "properties": { "x": reference } });
        for schema in [
            json!({ "$defs": { "t": { "$anchor": "t", "items": { "$ref": "#t" } } }, "$ref": "#t" }),
            json!({ "$defs": { "t": { "$id": "#t", "items": { "$ref": "#t" } } }, "$ref": "#t" }),
            json!({ "$id": "https://a.example/t", "items": { "$ref": "https://a.example/t" } }),
            json!({ "$id": "https://a.example/t", "items": { "$ref": "t#" } }),
            json!({ "$defs": { "a%b": next(json!({ "$ref": "#/$defs/a%25b" })) }, "$ref": "#/$defs/a%25b" }),
            json!({ "$dynamicAnchor": "n", "items": { "$dynamicRef": "#n" } }),
            json!({ "$recursiveAnchor": true, "items": { "$recursiveRef": "#" } }),
        ] {
            assert!(size(&schema).unwrap().recurs, "{schema}");
        }
    }
}
