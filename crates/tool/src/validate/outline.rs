//! A schema with its references followed: a short text can expand to more than can be checked.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// Maximum number of backtracks of a pattern.
pub(super) const MAX_BACKTRACKS: usize = 10_000;
/// Steps of a pattern that backtracks.
const BACKTRACKING: u64 = 1_000;
/// Bytes of text that are matched in one step.
const BYTES: u64 = 64;
/// Maximum number of named parts of a schema, because each reference may lead to any of them.
const MAX_NAMES: usize = 1_000;
/// Maximum number of parts that are documents of their own, in which each pointer may lead to another place.
const MAX_DOCUMENTS: usize = 100;
/// Keywords whose values are not schemas.
const DATA: [&str; 4] = ["const", "default", "enum", "examples"];

/// Keywords that refer to other schemas for the same value.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
/// Keywords that make a schema a document of its own.
const IDS: [&str; 2] = ["$id", "id"];
/// Keywords that name a schema, so that references can lead to it.
const NAMES: [&str; 4] = ["$id", "id", "$anchor", "$dynamicAnchor"];
/// Keywords for values that no other keyword of a schema covers: all schemas that these lead to are checked once more.
const UNEVALUATED: [&str; 2] = ["unevaluatedItems", "unevaluatedProperties"];

/// The parts of a schema, each with the part of a value that it applies to. The first one is the whole schema.
#[derive(Debug)]
pub(super) struct Outline {
    pub(super) parts: Vec<SchemaNode>,
}

/// A schema, with the indexes of the schemas that it leads to.
#[derive(Debug, Default)]
pub(super) struct SchemaNode {
    /// Schemas for the same value.
    pub(super) in_place: Vec<SchemaStep>,
    /// Schemas for the property of a name.
    pub(super) named: Vec<(Box<str>, usize)>,
    /// Schemas for each item or property.
    pub(super) each: Vec<SchemaStep>,
    /// Whether a reference leads to it.
    pub(super) is_target: bool,
    /// Whether it has a keyword for values that no other keyword covers.
    pub(super) is_for_rest: bool,
    /// Number of its patterns.
    pub(super) patterns: u64,
    /// Number of steps to compare a value.
    pub(super) comparing: u64,
    /// Number of steps to match a text.
    pub(super) matching: u64,
    /// Number of steps to match the name of a property.
    pub(super) matching_names: u64,
}

impl SchemaNode {
    pub(super) const fn is_plain(&self) -> bool {
        self.comparing == 0 && self.matching == 0 && self.matching_names == 0
    }

    /// Returns the number of steps of this part alone.
    pub(super) fn own(&self, value: &Value) -> u64 {
        let many = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let matching = match value {
            Value::String(text) => self.matching.saturating_mul(1 + many(text.len()) / BYTES),
            Value::Object(fields) => self.matching_names.saturating_mul(many(fields.len())),
            _ => 0,
        };
        matching.saturating_add(self.comparing).saturating_add(1)
    }
}

/// A step from a schema to another one.
#[derive(Debug, Clone, Copy)]
pub(super) struct SchemaStep {
    pub(super) to: usize,
    /// Whether the validator first tests the value for a fit, before it looks for errors.
    pub(super) is_asked: bool,
}

impl Outline {
    /// Follows the references of a schema.
    ///
    /// # Errors
    ///
    /// The reason that the schema is too large.
    pub(super) fn new(schema: &Value) -> Result<Self, String> {
        let mut builder = Builder::new(schema)?;
        builder.part(schema);
        while let Some((index, schema)) = builder.open.pop() {
            let part = builder.outline(schema);
            let is_target = builder.parts[index].is_target;
            builder.parts[index] = SchemaNode { is_target, ..part };
        }
        Ok(Self { parts: builder.parts })
    }
}

/// Builder of the parts of a schema.
struct Builder<'s> {
    /// The whole schema and its parts that are documents of their own: pointers start at them.
    documents: Vec<&'s Value>,
    /// The whole schema and its named parts.
    named: Vec<&'s Value>,
    /// Targets of the references.
    references: HashMap<&'s str, Vec<usize>>,
    parts: Vec<SchemaNode>,
    indexes: HashMap<*const Value, usize>,
    /// Parts still to be outlined.
    open: Vec<(usize, &'s Value)>,
}

impl<'s> Builder<'s> {
    fn new(schema: &'s Value) -> Result<Self, String> {
        let mut named = vec![schema];
        find_named(schema, &mut named);
        let is_document = |schema: &&&Value| IDS.iter().any(|id| schema.get(id).is_some());
        let inner = named.iter().skip(1).filter(is_document).copied();
        let documents: Vec<&Value> = std::iter::once(schema).chain(inner).collect();
        if named.len() > MAX_NAMES || documents.len() > MAX_DOCUMENTS {
            let most = format!("{MAX_NAMES} of its parts, or {MAX_DOCUMENTS} with an `$id`");
            return Err(format!("it names more than {most}"));
        }
        Ok(Self {
            documents,
            named,
            references: HashMap::new(),
            parts: Vec::new(),
            indexes: HashMap::new(),
            open: Vec::new(),
        })
    }

    /// Returns the index of a part.
    fn part(&mut self, schema: &'s Value) -> usize {
        let next = self.parts.len();
        let index = *self.indexes.entry(std::ptr::from_ref(schema)).or_insert(next);
        if index == next {
            self.parts.push(SchemaNode::default());
            self.open.push((index, schema));
        }
        index
    }

    fn outline(&mut self, schema: &'s Value) -> SchemaNode {
        let mut part = SchemaNode::default();
        let Value::Object(keywords) = schema else { return part };
        part.is_for_rest = UNEVALUATED.iter().any(|keyword| keywords.contains_key(*keyword));
        for (keyword, value) in keywords {
            match (keyword.as_str(), value) {
                (reference, Value::String(target)) if REFERENCES.contains(&reference) => {
                    let targets = self.targets(target).into_iter();
                    part.in_place.extend(targets.map(|to| SchemaStep { to, is_asked: false }));
                }
                ("allOf" | "then" | "else", _) => {
                    part.in_place.extend(self.steps(value, false));
                }
                ("anyOf" | "oneOf" | "not" | "if", _) => {
                    part.in_place.extend(self.steps(value, true));
                }
                ("dependentSchemas" | "dependencies", Value::Object(schemas)) => {
                    part.in_place.extend(self.values(schemas));
                }
                ("properties", Value::Object(schemas)) => {
                    let named =
                        schemas.iter().map(|(name, it)| (name.as_str().into(), self.part(it)));
                    part.named.extend(named);
                }
                ("patternProperties", Value::Object(schemas)) => {
                    part.each.extend(self.values(schemas));
                    part.patterns += u64::try_from(schemas.len()).unwrap_or(u64::MAX);
                    part.matching_names +=
                        schemas.keys().map(|pattern| matching(pattern)).sum::<u64>();
                }
                ("pattern", Value::String(pattern)) => {
                    part.patterns += 1;
                    part.matching += matching(pattern);
                }
                ("enum", Value::Array(values)) => part.comparing += comparing(values),
                ("contains", _) => part.each.extend(self.steps(value, true)),
                (
                    "additionalItems"
                    | "additionalProperties"
                    | "items"
                    | "prefixItems"
                    | "propertyNames"
                    | "unevaluatedItems"
                    | "unevaluatedProperties",
                    _,
                ) => part.each.extend(self.steps(value, false)),
                _ => {}
            }
        }
        part
    }

    /// Returns steps to a schema, or to the schemas of a list.
    fn steps(&mut self, value: &'s Value, is_asked: bool) -> Vec<SchemaStep> {
        match value {
            Value::Array(schemas) => schemas
                .iter()
                .map(|schema| SchemaStep { to: self.part(schema), is_asked })
                .collect(),
            Value::Object(_) => vec![SchemaStep { to: self.part(value), is_asked }],
            _ => Vec::new(),
        }
    }

    fn values(&mut self, schemas: &'s Map<String, Value>) -> Vec<SchemaStep> {
        let steps = schemas.values().filter(|schema| schema.is_object());
        steps.map(|schema| SchemaStep { to: self.part(schema), is_asked: false }).collect()
    }

    /// Returns the parts that a reference may lead to.
    fn targets(&mut self, reference: &'s str) -> Vec<usize> {
        if let Some(known) = self.references.get(reference) {
            return known.clone();
        }
        let found = self.find_referred(reference);
        let targets: Vec<usize> = found.into_iter().map(|target| self.part(target)).collect();
        for target in &targets {
            self.parts[*target].is_target = true;
        }
        self.references.insert(reference, targets.clone());
        targets
    }

    /// Returns the schemas inside this one that a reference may lead to.
    fn find_referred(&self, reference: &str) -> Vec<&'s Value> {
        let (document, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let is_named = |schema: &Value, name: &str| {
            let names = NAMES.iter().filter_map(|keyword| schema.get(keyword)?.as_str());
            names.into_iter().any(|found| found.trim_start_matches('#').ends_with(name))
        };
        if !fragment.is_empty() && !fragment.starts_with('/') {
            let named = self.named.iter().copied();
            return named.filter(|schema| is_named(schema, fragment)).collect();
        }
        let pointer = percent_decoded(fragment);
        let documents = self.documents.iter().copied();
        let documents =
            documents.filter(|schema| document.is_empty() || is_named(schema, document));
        documents.filter_map(|schema| schema.pointer(&pointer)).collect()
    }
}

/// Returns the number of steps to match a pattern. A pattern with look-around or a back-reference backtracks.
fn matching(pattern: &str) -> u64 {
    let mut after = pattern.split('\\').skip(1);
    let looks_back =
        after.any(|rest| rest.starts_with(|first: char| first.is_ascii_digit() || first == 'k'));
    let looks_around = ["(?=", "(?!", "(?<=", "(?<!", "(?>"].iter().any(|it| pattern.contains(it));
    if looks_around || looks_back { BACKTRACKING } else { 1 }
}

/// Returns the number of steps to compare a value with these.
fn comparing(values: &[Value]) -> u64 {
    let (lists, plain) = values.iter().partition::<Vec<_>, _>(|it| it.is_object() || it.is_array());
    u64::try_from(lists.len() + plain.len() / 16).unwrap_or(u64::MAX)
}

/// Finds the named parts of a schema.
fn find_named<'s>(value: &'s Value, found: &mut Vec<&'s Value>) {
    let parts: Vec<&Value> = match value {
        Value::Object(fields) => {
            let schemas = fields.iter().filter(|(keyword, _)| !DATA.contains(&keyword.as_str()));
            schemas.map(|(_, value)| value).collect()
        }
        Value::Array(items) => items.iter().collect(),
        _ => return,
    };
    for part in parts {
        if NAMES.iter().any(|keyword| part.get(keyword).is_some_and(Value::is_string)) {
            found.push(part);
        }
        find_named(part, found);
    }
}

/// Decodes percent-encoding, as in the pointers of references.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let escaped = tail.get(..2).filter(|_| first == b'%');
        let code = escaped.and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
