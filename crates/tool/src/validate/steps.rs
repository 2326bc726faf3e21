//! The number of steps to check a value.
//!
//! A validator remembers whether a value fits a referenced schema, but looks for errors in each branch again: if a
//! schema refers to itself from two branches, that doubles with each level of the value.

use std::collections::HashMap;

use serde_json::Value;

use super::outline::{Outline, SchemaNode, SchemaStep};
use super::size::Size;

/// Maximum number of steps of a check.
pub(super) const MAX_STEPS: u64 = 5_000_000;
/// Maximum number of steps to find the errors.
pub(super) const MAX_ERROR_STEPS: u64 = 500_000;
/// Maximum nesting depth of schemas during a check: each level takes room on the thread's stack.
const MAX_DEPTH: usize = 1_000;
/// Number of steps up to which no exact count is needed.
const FEW_STEPS: u64 = 10_000;

/// The effort of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effort {
    /// Finding the errors stays within the limit.
    Bounded,
    /// The check stays within the limit, but finding the errors would not.
    FitOnly,
}

/// Limits of the checks against a schema.
#[derive(Debug)]
pub(super) struct Checks {
    outline: Outline,
    /// Maximum number of steps for each part of a value, if known in advance.
    bound: Option<u64>,
}

impl Checks {
    /// Follows the references of a schema.
    ///
    /// # Errors
    ///
    /// The reason that the schema is too large.
    pub(super) fn new(schema: &Value) -> Result<Self, String> {
        let outline = Outline::new(schema)?;
        let size = Size::measure(&outline)?;
        let is_bound = !size.recurs && outline.parts.iter().all(SchemaNode::is_plain);
        Ok(Self { outline, bound: is_bound.then_some(size.schemas) })
    }

    /// Counts the steps of a check.
    ///
    /// # Errors
    ///
    /// The reason that the check takes too many steps.
    pub(super) fn count(&self, value: &Value) -> Result<Effort, String> {
        if self.bound.is_some_and(|bound| nodes(value).saturating_mul(bound) <= FEW_STEPS) {
            return Ok(Effort::Bounded);
        }
        let mut steps = StepCounter { outline: &self.outline, taken: 0, known: HashMap::new() };
        let cost = steps.take(0, value, 0)?;
        Ok(if cost.errors <= MAX_ERROR_STEPS { Effort::Bounded } else { Effort::FitOnly })
    }
}

fn nodes(value: &Value) -> u64 {
    match value {
        Value::Array(items) => items.iter().map(nodes).sum::<u64>() + 1,
        Value::Object(fields) => fields.values().map(nodes).sum::<u64>() + 1,
        _ => 1,
    }
}

struct StepCounter<'o> {
    outline: &'o Outline,
    taken: u64,
    /// Known costs of referenced schemas, by schema and value.
    known: HashMap<(usize, *const Value), Cost>,
}

/// The steps of one schema with one value, including nested ones.
#[derive(Debug, Clone, Copy)]
struct Cost {
    /// Steps to decide whether the value fits, without remembered results.
    fit: u64,
    /// Steps to find all errors.
    errors: u64,
}

impl Cost {
    fn add(&mut self, other: Self, is_asked: bool) {
        let asking = if is_asked { other.fit } else { 0 };
        self.fit = self.fit.saturating_add(other.fit);
        self.errors = self.errors.saturating_add(other.errors).saturating_add(asking);
    }
}

impl StepCounter<'_> {
    fn take(&mut self, index: usize, value: &Value, depth: usize) -> Result<Cost, String> {
        let outline = self.outline;
        let part = &outline.parts[index];
        let own = part.own(value);
        self.taken = self.taken.saturating_add(own);
        if self.taken > MAX_STEPS {
            return Err(format!("it would take more than {MAX_STEPS} steps"));
        }
        if depth > MAX_DEPTH {
            return Err(format!("it would lead through more than {MAX_DEPTH} schemas"));
        }
        let place = (index, std::ptr::from_ref(value));
        let is_remembered = part.is_target && (value.is_object() || value.is_array());
        if is_remembered && let Some(known) = self.known.get(&place) {
            return Ok(*known);
        }
        let mut cost = Cost { fit: own, errors: own };
        for SchemaStep { to, is_asked } in &part.in_place {
            cost.add(self.take(*to, value, depth + 1)?, *is_asked);
        }
        if let Value::Object(fields) = value {
            for (name, to) in &part.named {
                if let Some(field) = fields.get(&**name) {
                    cost.add(self.take(*to, field, depth + 1)?, false);
                }
            }
        }
        for SchemaStep { to, is_asked } in &part.each {
            let mut inside = |value| -> Result<(), String> {
                cost.add(self.take(*to, value, depth + 1)?, *is_asked);
                Ok(())
            };
            match value {
                Value::Array(items) => items.iter().try_for_each(&mut inside)?,
                Value::Object(fields) => fields.values().try_for_each(&mut inside)?,
                _ => {}
            }
        }
        if is_remembered {
            self.known.insert(place, cost);
        }
        Ok(cost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Schema;
    use serde_json::json;

    fn nested(levels: usize, inmost: Value) -> Value {
        (0..levels).fold(inmost, |value, _| json!({ "x": value }))
    }

    /// A schema that refers to itself twice, in the branches of a keyword.
    fn branching(keyword: &str) -> Value {
        let branch = json!({ "type": "object", "properties": { "x": { "$ref": "#" } } });
        json!({ keyword: [branch, branch, { "type": "integer" }] })
    }

    /// Spec: T3. Each level of the value has twice the branches of the one above it.
    #[test]
    fn errors_in_many_branches_are_not_located() {
        for keyword in ["anyOf", "oneOf"] {
            let schema = Schema::new(&branching(keyword)).unwrap();
            let misfit = |levels| schema.check_arguments(&nested(levels, json!("no"))).unwrap_err();
            let few = misfit(3);
            assert_eq!(few.to_string(), format!("arguments does not satisfy {keyword}"));
            let many = misfit(90);
            assert_eq!(
                many.to_string(),
                "arguments does not satisfy its schema; to say where would take more than 500000 steps"
            );
            assert!(!many.is_unchecked());
        }
        let schema = Schema::new(&branching("anyOf")).unwrap();
        assert_eq!(schema.check_arguments(&nested(90, json!(7))), Ok(()));
    }

    /// Spec: T3
    #[test]
    fn a_check_of_too_many_steps_is_refused() {
        let options: Vec<Value> = (0..1_000).map(|n| json!({ "not": { "const": n } })).collect();
        let schema = Schema::new(&json!({ "items": { "allOf": options } })).unwrap();
        let list = |many: usize| Value::from(vec![-1; many]);
        assert_eq!(schema.check_arguments(&list(500)), Ok(()));
        let refused = schema.check_arguments(&list(5_000)).unwrap_err();
        assert!(refused.is_unchecked());
        assert_eq!(
            refused.to_string(),
            "arguments cannot be checked against its schema: it would take more than 5000000 steps"
        );
    }

    /// Spec: T3. Each schema that is entered takes room of the thread's stack.
    #[test]
    fn a_check_through_too_many_schemas_is_refused() {
        let mut chain: serde_json::Map<String, Value> = (0..90)
            .map(|number| {
                let next = json!({ "$ref": format!("#/$defs/a{}", number + 1) });
                (format!("a{number}"), json!({ "allOf": [next] }))
            })
            .collect();
        chain.insert("a90".into(), json!({ "properties": { "x": { "$ref": "#" } } }));
        let schema = Schema::new(&json!({ "$ref": "#/$defs/a0", "$defs": chain })).unwrap();
        assert_eq!(schema.check_data(&nested(2, json!(7))), Ok(()));
        let refused = schema.check_data(&nested(90, json!(7))).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "data cannot be checked against its schema: it would lead through more than 1000 schemas"
        );
    }

    /// Spec: T3. A pattern that tries one way after the other does so for a while.
    #[test]
    fn texts_for_a_slow_pattern_are_bounded() {
        let schema = json!({ "items": { "pattern": "^(?=a)(a|aa)+$(?<=b)" } });
        let schema = Schema::new(&schema).unwrap();
        let texts = |many: usize| -> Value {
            (0..many).map(|number| json!("a".repeat(60) + &format!("{number}!"))).collect()
        };
        let misfit = schema.check_arguments(&texts(3)).unwrap_err().to_string();
        assert!(misfit.starts_with("[0] does not satisfy pattern"), "{misfit}");
        assert!(schema.check_arguments(&texts(6_000)).unwrap_err().is_unchecked());
    }
}
