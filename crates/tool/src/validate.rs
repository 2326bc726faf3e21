//! Checks values against JSON Schema and reports errors in words that a model can act on.

#[cfg(feature = "json-schema")]
mod outline;
#[cfg(feature = "json-schema")]
mod size;
#[cfg(feature = "json-schema")]
mod steps;
#[cfg(feature = "json-schema")]
mod validator;

#[cfg(not(feature = "json-schema"))]
#[path = "validate/without.rs"]
mod validator;

use layer0::{JsonText, is_deeper};
use serde_json::Value;
use serde_json::value::RawValue;
use thiserror::Error;

use self::validator::Validator;
use layer0::code;
use layer0::failure::{Effect, Facts, Failure};

/// Maximum nesting depth of a schema. Its text is read again inside that of its agent, for which the limit of
/// serde_json is 128.
const MAX_SCHEMA_DEPTH: usize = 100;

/// A compiled JSON Schema. Equal schemas are compiled once.
///
/// Without the feature `json-schema` there is no validator, and no schema compiles.
///
/// ```
/// # #[cfg(feature = "json-schema")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use backstop_tool::Schema;
/// use serde_json::json;
///
/// let schema = Schema::new(&json!({"properties": {"n": {"type": "integer"}}}))?;
/// let misfit = schema.check(&json!({"n": "7"})).unwrap_err();
/// assert_eq!(misfit.to_string(), "n must be an integer");
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "json-schema"))]
/// # fn main() {}
/// ```
#[derive(Debug, Clone)]
pub struct Schema(Validator);

impl Schema {
    /// Compiles a schema.
    ///
    /// # Errors
    ///
    /// [`SchemaError`] if it is not valid JSON Schema, is nested so deeply that a record with it could not be read, or
    /// is too large to check with its references followed; without the feature `json-schema`, always.
    pub fn new(schema: &Value) -> Result<Self, SchemaError> {
        if is_deeper(schema, MAX_SCHEMA_DEPTH) {
            let why = format!("it is nested deeper than {MAX_SCHEMA_DEPTH} levels");
            return Err(SchemaError(why));
        }
        Validator::new(schema).map(Self)
    }

    /// Checks the arguments of a call; errors are in words that a model can act on.
    ///
    /// # Errors
    ///
    /// [`SchemaViolation`], naming at most five problems; or that the check would take too many steps.
    pub fn check_arguments(&self, arguments: &Value) -> Result<(), SchemaViolation> {
        self.0.check(arguments, "arguments")
    }

    /// Checks the data that a person gives; errors are in words that the person can act on.
    ///
    /// # Errors
    ///
    /// [`SchemaViolation`], naming at most five problems; or that the check would take too many steps.
    pub fn check_data(&self, data: &Value) -> Result<(), SchemaViolation> {
        self.0.check(data, "data")
    }

    /// Checks the input of an operator.
    ///
    /// # Errors
    ///
    /// [`SchemaViolation`], naming at most five problems; or that the check would take too many steps.
    pub fn check_input(&self, input: &Value) -> Result<(), SchemaViolation> {
        self.0.check(input, "input")
    }

    /// Checks a value; errors are in words that a model can act on.
    ///
    /// # Errors
    ///
    /// [`SchemaViolation`], naming at most five problems; or that the check would take too many steps.
    pub fn check(&self, value: &Value) -> Result<(), SchemaViolation> {
        self.0.check(value, "output")
    }
}

/// The reason that a JSON Schema cannot be used.
///
/// Retry: never. Effect: none.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct SchemaError(String);

impl Failure for SchemaError {
    fn facts(&self) -> Facts {
        Facts::never(code::INPUT_INVALID, Effect::None)
    }
}

/// The reason that a value does not fit a schema, or that it could not be checked.
///
/// Retry: never. Effect: none.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(transparent)]
pub struct SchemaViolation(Why);

impl Failure for SchemaViolation {
    fn facts(&self) -> Facts {
        Facts::never(code::INPUT_INVALID, Effect::None)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
enum Why {
    #[error("{0}")]
    Differs(String),
    // Boxed because it is rare, and may be larger than the errors that contain it.
    #[error(transparent)]
    Unchecked(Box<Unchecked>),
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{whole} cannot be checked against {schema}: {why}")]
struct Unchecked {
    whole: String,
    schema: String,
    why: String,
}

#[cfg_attr(not(feature = "json-schema"), expect(dead_code, reason = "nothing is checked"))]
impl SchemaViolation {
    const fn differs(what: String) -> Self {
        Self(Why::Differs(what))
    }

    fn for_unchecked(whole: &str, why: String) -> Self {
        let (whole, schema) = (whole.to_owned(), "its schema".to_owned());
        Self(Why::Unchecked(Unchecked { whole, schema, why }.into()))
    }

    /// Returns whether the value was not checked because that would take too many steps. A smaller value may be
    /// checked.
    #[must_use]
    pub const fn is_unchecked(&self) -> bool {
        matches!(self.0, Why::Unchecked(_))
    }

    /// Names the schema, such as ``the input schema of `pay` ``.
    pub(crate) fn with_schema(mut self, schema: impl FnOnce() -> String) -> Self {
        if let Why::Unchecked(unchecked) = &mut self.0 {
            unchecked.schema = schema();
        }
        self
    }
}

/// Parses arguments that arrived as text, and returns where they stop being JSON.
pub(crate) fn explain_parse_failure(text: &str) -> String {
    match JsonText::parse_arguments(text) {
        Err(error) if serde_json::from_str::<&RawValue>(text).is_ok() => {
            format!("arguments cannot be used: {error}")
        }
        Err(error) => format!("arguments must be a JSON object, but do not parse: {error}"),
        Ok(_) => "arguments must be a JSON object, not a string".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_no_json_is_located() {
        assert!(explain_parse_failure("{\"a\": ").contains("EOF while parsing"));
        assert_eq!(explain_parse_failure("{}"), "arguments must be a JSON object, not a string");
        let deep = "[".repeat(200) + &"]".repeat(200);
        assert_eq!(
            explain_parse_failure(&deep),
            "arguments cannot be used: it is nested deeper than 100 levels"
        );
        assert_eq!(
            explain_parse_failure("[1e999]"),
            "arguments cannot be used: number out of range"
        );
        assert_eq!(
            explain_parse_failure(r#"{"to": "ada", "to": "bob"}"#),
            "arguments cannot be used: the key `to` occurs twice"
        );
    }
}
