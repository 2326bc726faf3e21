//! An operator with the schemas of its input and its answer.

use std::sync::Arc;

use backstop_tool::{Schema, SchemaError};
use layer0::error::{OperatorError, OrchError};
use layer0::failure::{Effect, Facts, Failure};
use layer0::operator::Answer;
use layer0::stop::Stop;
use layer0::{Operator, code};
use serde_json::Value;
use thiserror::Error;

/// An operator whose schemas are valid.
pub(crate) struct CheckedOperator {
    pub(crate) operator: Arc<dyn Operator>,
    input: Option<Schema>,
    output: Option<Schema>,
}

/// An input or an answer that does not fit its schema.
#[derive(Debug, Error)]
enum SchemaMismatch {
    /// The input does not fit.
    ///
    /// Retry: never. Effect: none.
    #[error("the input of `{operator}` does not fit its schema: {why}")]
    Input { operator: String, why: String },
    /// A schema of the operator is invalid.
    ///
    /// Retry: never. Effect: none.
    #[error("a schema of `{operator}` cannot be used: {why}")]
    Schema { operator: String, why: String },
    /// The answer does not fit.
    ///
    /// Retry: never. Effect: unknown.
    #[error("the answer of `{operator}` does not fit its schema: {why}")]
    Output { operator: String, why: String },
}

impl Failure for SchemaMismatch {
    fn facts(&self) -> Facts {
        match self {
            Self::Input { .. } | Self::Schema { .. } => {
                Facts::never(code::INPUT_INVALID, Effect::None)
            }
            Self::Output { .. } => Facts::never(code::OUTPUT_UNSERIALIZABLE, Effect::Unknown),
        }
    }
}

impl CheckedOperator {
    pub(crate) fn new(operator: Arc<dyn Operator>) -> Result<Self, SchemaError> {
        let input = operator.input_schema().map(Schema::new).transpose()?;
        let output = operator.output_schema().map(Schema::new).transpose()?;
        Ok(Self { operator, input, output })
    }

    /// Wraps an operator that is not registered.
    pub(crate) fn new_unregistered(operator: Arc<dyn Operator>) -> Result<Self, OrchError> {
        let name = operator.name().to_owned();
        Self::new(operator).map_err(|error| {
            let misfit = SchemaMismatch::Schema { operator: name, why: error.to_string() };
            OperatorError::from_failure(misfit).into()
        })
    }

    /// Refuses an input that does not fit, before anything starts.
    pub(crate) fn check_input(&self, input: &Value) -> Result<(), OrchError> {
        let misfit = self.input.as_ref().and_then(|schema| schema.check_input(input).err());
        misfit.map_or(Ok(()), |misfit| {
            let operator = self.operator.name().to_owned();
            let why = misfit.to_string();
            Err(OperatorError::from_failure(SchemaMismatch::Input { operator, why }).into())
        })
    }

    /// Refuses a completed answer that does not fit the operator's schema or the schema of its task.
    pub(crate) fn check_output(
        &self,
        answer: Answer,
        expected: Option<&Value>,
    ) -> Result<Answer, OrchError> {
        if answer.stop != Stop::Completed {
            return Ok(answer);
        }
        let declared = self.output.as_ref().and_then(|schema| misfit(schema, &answer.output));
        let misfit = declared.or_else(|| {
            let schema = Schema::new(expected?);
            schema.map_or_else(|error| Some(error.to_string()), |it| misfit(&it, &answer.output))
        });
        match misfit {
            None => Ok(answer),
            Some(why) => {
                let operator = self.operator.name().to_owned();
                Err(OperatorError::from_failure(SchemaMismatch::Output { operator, why }).into())
            }
        }
    }
}

fn misfit(schema: &Schema, value: &Value) -> Option<String> {
    schema.check(value).err().map(|misfit| misfit.to_string())
}
