//! References in a rewritten schema.

use std::collections::{BTreeMap, BTreeSet};

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

use super::schema_draft::{LISTS, NAMED, ONE, modernise};

/// Returns the part of a schema that a reference within it points to.
pub(super) fn find_referred<'s>(root: &'s Value, reference: &str) -> Option<&'s Value> {
    let pointer = percent_decode_str(reference.strip_prefix('#')?).decode_utf8().ok()?;
    root.pointer(&pointer)
}

/// Repairs the references whose target was moved: the target becomes a definition, copied from
/// `own`, the schema before the rewrite.
///
/// References without a target are removed, which only makes the schema more permissive: an
/// endpoint refuses a request that contains one.
pub(super) fn mend_references(schema: &mut Map<String, Value>, own: &Value) {
    let mut references = BTreeSet::new();
    collect(schema, &mut references);
    if references.is_empty() {
        return;
    }
    let root = Value::Object(std::mem::take(schema));
    let moved = MovedReferences::new(&root, own, references);
    if let Value::Object(root) = root {
        *schema = root;
    }
    if !moved.targets.is_empty() {
        moved.mend(schema);
    }
    if moved.definitions.is_empty() {
        return;
    }
    let defs = schema.entry("$defs").or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(defs) = defs {
        for (name, mut definition) in moved.definitions.clone() {
            moved.mend(&mut definition);
            defs.insert(name, Value::Object(definition));
        }
    }
}

/// References whose targets are missing.
struct MovedReferences {
    /// The definition that replaces each target; `None` if there is no target.
    targets: BTreeMap<String, Option<String>>,
    definitions: BTreeMap<String, Map<String, Value>>,
}

impl MovedReferences {
    fn new(root: &Value, own: &Value, references: BTreeSet<String>) -> Self {
        let is_taken = |name: &str| root.get("$defs").is_some_and(|defs| defs.get(name).is_some());
        let mut names = (1_u32..).map(|nth| format!("ref_{nth}")).filter(|name| !is_taken(name));
        let mut moved = Self { targets: BTreeMap::new(), definitions: BTreeMap::new() };
        let mut left: Vec<String> = references.into_iter().rev().collect();
        while let Some(reference) = left.pop() {
            let is_here = find_referred(root, &reference).is_some_and(Value::is_object);
            if is_here || moved.targets.contains_key(&reference) {
                continue;
            }
            let target = find_referred(own, &reference).and_then(Value::as_object).cloned();
            let name = target.and_then(|mut target| {
                modernise(&mut target);
                let mut further = BTreeSet::new();
                collect(&target, &mut further);
                left.extend(further);
                let name = names.next()?;
                moved.definitions.insert(name.clone(), target);
                Some(name)
            });
            moved.targets.insert(reference, name);
        }
        moved
    }

    /// Redirects the moved references in a schema.
    fn mend(&self, schema: &mut Map<String, Value>) {
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str)
            && let Some(target) = self.targets.get(reference)
        {
            if let Some(name) = target {
                schema.insert("$ref".to_owned(), format!("#/$defs/{name}").into());
            } else {
                schema.remove("$ref");
            }
        }
        for (key, value) in schema.iter_mut() {
            match value {
                Value::Object(inner) if ONE.contains(&key.as_str()) => self.mend(inner),
                Value::Object(named) if NAMED.contains(&key.as_str()) => {
                    named
                        .values_mut()
                        .filter_map(Value::as_object_mut)
                        .for_each(|it| self.mend(it));
                }
                Value::Array(list) if LISTS.contains(&key.as_str()) => {
                    list.iter_mut().filter_map(Value::as_object_mut).for_each(|it| self.mend(it));
                }
                _ => {}
            }
        }
    }
}

/// Collects the references in a schema.
fn collect(schema: &Map<String, Value>, references: &mut BTreeSet<String>) {
    references.extend(schema.get("$ref").and_then(Value::as_str).map(str::to_owned));
    for (key, value) in schema {
        match value {
            Value::Object(inner) if ONE.contains(&key.as_str()) => collect(inner, references),
            Value::Object(named) if NAMED.contains(&key.as_str()) => {
                named.values().filter_map(Value::as_object).for_each(|it| collect(it, references));
            }
            Value::Array(list) if LISTS.contains(&key.as_str()) => {
                list.iter().filter_map(Value::as_object).for_each(|it| collect(it, references));
            }
            _ => {}
        }
    }
}
