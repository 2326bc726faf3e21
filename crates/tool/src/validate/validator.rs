//! Compiles schemas, shares equal ones, and reports the errors of a value.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{PatternOptions, ValidationError};
use serde_json::Value;

use super::outline::MAX_BACKTRACKS;
use super::steps::{Checks, Effort, MAX_ERROR_STEPS};
use super::{SchemaError, SchemaViolation};

/// Maximum number of reported problems.
const MAX_PROBLEMS: usize = 5;
/// Maximum number of characters of a value or a list of values in a message.
const MAX_VALUE_CHARS: usize = 200;

/// Compiled schemas by their text: equal agents share them, because they make up most of the memory of an idle agent.
static COMPILED: LazyLock<Mutex<HashMap<String, Weak<Compiled>>>> = LazyLock::new(Mutex::default);

#[derive(Debug, Clone)]
pub(super) struct Validator(Arc<Compiled>);

#[derive(Debug)]
struct Compiled {
    validator: jsonschema::Validator,
    checks: Checks,
}

impl Validator {
    pub(super) fn new(schema: &Value) -> Result<Self, SchemaError> {
        let text = schema.to_string();
        let known = |compiled: &HashMap<String, Weak<_>>| compiled.get(&text)?.upgrade();
        if let Some(validator) = known(&COMPILED.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(Self(validator));
        }
        let checks = Checks::new(schema).map_err(SchemaError)?;
        let patterns = PatternOptions::fancy_regex().backtrack_limit(MAX_BACKTRACKS);
        let validator = jsonschema::options().with_pattern_options(patterns).build(schema);
        let validator = validator.map_err(|error| SchemaError(error.to_string()))?;
        let validator = Arc::new(Compiled { validator, checks });
        let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
        if compiled.len() == compiled.capacity() {
            compiled.retain(|_, validator| validator.strong_count() > 0);
        }
        compiled.insert(text, Arc::downgrade(&validator));
        Ok(Self(validator))
    }

    /// Checks `value`, which messages call `whole`; returns the problems as `property expectation`, joined by `; `.
    pub(super) fn check(&self, value: &Value, whole: &str) -> Result<(), SchemaViolation> {
        let Compiled { validator, checks } = &*self.0;
        let effort =
            checks.count(value).map_err(|why| SchemaViolation::for_unchecked(whole, why))?;
        if validator.is_valid(value) {
            return Ok(());
        }
        if effort == Effort::FitOnly {
            let what = format!(
                "{whole} does not satisfy its schema; to say where would take more than \
                 {MAX_ERROR_STEPS} steps"
            );
            return Err(SchemaViolation::differs(what));
        }
        let mut errors = validator.iter_errors(value);
        let problems: Vec<String> =
            errors.by_ref().take(MAX_PROBLEMS).map(|error| describe(&error, whole)).collect();
        let more = errors.count();
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        Err(SchemaViolation::differs(problems.join("; ") + &more))
    }
}

fn describe(error: &ValidationError<'_>, whole: &str) -> String {
    let path = property(error.instance_path().as_str());
    let inside = |name: &str| {
        if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
    };
    let property = if path.is_empty() { whole } else { &path };
    match error.kind() {
        ValidationErrorKind::Type { kind } => {
            let kinds: Vec<String> = match kind {
                TypeKind::Single(kind) => vec![article(&kind.to_string())],
                TypeKind::Multiple(kinds) => {
                    kinds.iter().map(|kind| article(&kind.to_string())).collect()
                }
            };
            format!("{property} must be {}", kinds.join(" or "))
        }
        ValidationErrorKind::Required { property } => {
            format!("{} is required", inside(property.as_str().unwrap_or_default()))
        }
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            let names: Vec<String> =
                unexpected.iter().map(|name| inside(&truncate(name))).collect();
            format!("{} is not a known property", truncate(&names.join(", ")))
        }
        ValidationErrorKind::Enum { options } => {
            format!("{property} must be one of {}", truncate(&options.to_string()))
        }
        ValidationErrorKind::Constant { expected_value } => {
            format!("{property} must be {}", truncate(&expected_value.to_string()))
        }
        ValidationErrorKind::Minimum { limit } => format!("{property} must be at least {limit}"),
        ValidationErrorKind::Maximum { limit } => format!("{property} must be at most {limit}"),
        ValidationErrorKind::ExclusiveMinimum { limit } => {
            format!("{property} must be above {limit}")
        }
        ValidationErrorKind::ExclusiveMaximum { limit } => {
            format!("{property} must be below {limit}")
        }
        ValidationErrorKind::MinLength { limit } => {
            format!("{property} must have at least {limit} characters")
        }
        ValidationErrorKind::MaxLength { limit } => {
            format!("{property} must have at most {limit} characters")
        }
        ValidationErrorKind::MinItems { limit } => {
            format!("{property} must have at least {limit} items")
        }
        ValidationErrorKind::MaxItems { limit } => {
            format!("{property} must have at most {limit} items")
        }
        ValidationErrorKind::Pattern { pattern } => {
            format!("{property} must match {}", truncate(pattern))
        }
        ValidationErrorKind::Format { format } => format!("{property} must be a valid {format}"),
        other => format!("{property} does not satisfy {}", other.keyword()),
    }
}

/// Converts `/a/0/b` into `a[0].b`; the root becomes an empty text.
fn property(pointer: &str) -> String {
    let mut path = String::new();
    for part in pointer.split('/').skip(1) {
        if part.bytes().all(|byte| byte.is_ascii_digit()) && !part.is_empty() {
            path.push('[');
            path.push_str(part);
            path.push(']');
        } else {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(&truncate(&part.replace("~1", "/").replace("~0", "~")));
        }
    }
    path
}

fn article(kind: &str) -> String {
    match kind {
        "null" => "null".to_owned(),
        "array" | "object" | "integer" => format!("an {kind}"),
        _ => format!("a {kind}"),
    }
}

fn truncate(text: &str) -> String {
    text.chars().take(MAX_VALUE_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Schema;
    use serde_json::json;

    /// Spec: T3
    #[test]
    fn problems_name_the_property_and_the_expectation() {
        let schema = json!({
            "type": "object",
            "properties": {
                "error_id": {"type": "string", "minLength": 3},
                "limit": {"type": "integer", "minimum": 1, "maximum": 9},
                "mode": {"enum": ["a", "b"]},
                "rows": {"type": "array", "items": {
                    "type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"],
                }},
            },
            "required": ["error_id"],
            "additionalProperties": false,
        });
        let schema = Schema::new(&schema).unwrap();
        #[track_caller]
        fn expect(schema: &Schema, value: Value, problem: &str) {
            assert_eq!(schema.check_arguments(&value).unwrap_err().to_string(), problem);
        }
        expect(&schema, json!({"error_id": 7}), "error_id must be a string");
        expect(&schema, json!({}), "error_id is required");
        expect(&schema, json!([]), "arguments must be an object");
        expect(&schema, json!({"error_id": "a"}), "error_id must have at least 3 characters");
        expect(&schema, json!({"error_id": "abc", "limit": 0}), "limit must be at least 1");
        expect(
            &schema,
            json!({"error_id": "abc", "mode": "c"}),
            "mode must be one of [\"a\",\"b\"]",
        );
        expect(&schema, json!({"error_id": "abc", "x": 1}), "x is not a known property");
        expect(
            &schema,
            json!({"error_id": "abc", "rows": [{"n": 1}, {}]}),
            "rows[1].n is required",
        );
        expect(
            &schema,
            json!({"error_id": "abc", "rows": [{"n": "1"}]}),
            "rows[0].n must be a number",
        );
        assert_eq!(schema.check_arguments(&json!({"error_id": "abc"})), Ok(()));
    }

    /// Spec: T3
    #[test]
    fn a_property_may_be_called_arguments() {
        let schema = Schema::new(&json!({
            "properties": {"arguments": {"type": "string"}, "my_arguments": {"required": ["arguments"]}},
            "required": ["arguments"],
        }));
        let misfit = |value: Value| schema.clone().unwrap().check(&value).unwrap_err().to_string();
        assert_eq!(misfit(json!({"arguments": 1})), "arguments must be a string");
        assert_eq!(misfit(json!({})), "arguments is required");
        let inside = json!({"arguments": "", "my_arguments": {}});
        assert_eq!(misfit(inside), "my_arguments.arguments is required");
        let whole = Schema::new(&json!({"type": "object"})).unwrap();
        assert_eq!(whole.check(&json!([])).unwrap_err().to_string(), "output must be an object");
        let inside = json!({"arguments": {"type": "object", "required": ["x"]}});
        let inside = Schema::new(&json!({"properties": inside})).unwrap();
        let misfit = inside.check_arguments(&json!({"arguments": {}})).unwrap_err().to_string();
        assert_eq!(misfit, "arguments.x is required");
    }

    #[test]
    fn unknown_properties_are_named_up_to_a_bound() {
        let schema = json!({"properties": {"known": {}}, "additionalProperties": false});
        let schema = Schema::new(&schema).unwrap();
        let many: Value = (0..1_000).map(|n| (format!("p{n:03}"), Value::Null)).collect();
        let problem = schema.check_arguments(&many).unwrap_err().to_string();
        assert!(problem.starts_with("p000, p001, "), "{problem}");
        assert!(problem.ends_with(" is not a known property"), "{problem}");
        assert!(problem.len() < MAX_VALUE_CHARS + 30, "{problem}");
    }
}
