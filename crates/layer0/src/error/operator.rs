use std::borrow::Cow;

use serde_json::Value;
use thiserror::Error;

use super::boxed::BoxError;
use super::orchestrator::OrchError;
use crate::code;
use crate::failure::{
    Effect, Elsewhere, Exhausted, Facts, Failure, InnerError, Retry, stated_facts,
};
use crate::id::RunId;

/// The reason an operator could not finish.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OperatorError {
    /// The model call failed after the retry stack gave up.
    ///
    /// Retry: as the provider's error says. Effect: as the provider's error says.
    #[error("operator could not use its model")]
    #[non_exhaustive]
    Model {
        /// The provider error's code.
        code: &'static str,
        /// The provider error's retry answer.
        retry: Retry,
        /// The provider error's effect answer.
        effect: Effect,
        /// The provider error's answer about other endpoints.
        elsewhere: Elsewhere,
        /// Whether the provider error counts against its endpoint.
        counts_against: bool,
        /// Further details, if the error has any.
        kept: Option<Box<ErrorDetails>>,
        /// The provider's error.
        source: BoxError,
    },
    /// A dispatched operator failed.
    ///
    /// Retry: as the error inside says, never without one. Effect: as the error inside says,
    /// unknown without one.
    #[error("sub-dispatch to `{operator}` failed: {message}")]
    #[non_exhaustive]
    SubDispatch {
        /// The operator that was called.
        operator: Box<str>,
        /// The reason it failed; the code if there is an error inside.
        message: Box<str>,
        /// The steps done before, if the operator works in steps.
        done: Box<[StepDone]>,
        /// The orchestrator's error.
        source: Option<InnerError<OrchError>>,
    },
    /// The context for the model could not be put together.
    ///
    /// Retry: never. Effect: none.
    #[error("context assembly failed: {0}")]
    ContextAssembly(String),
    /// A transient failure.
    ///
    /// Retry: with backoff. Effect: none.
    #[error("{0}")]
    Retryable(String),
    /// A permanent failure that may have acted. An operator that refuses its input before it acts returns an error of
    /// its own with [`Effect::None`], by [`OperatorError::from_failure`].
    ///
    /// Retry: never. Effect: unknown.
    #[error("{0}")]
    NonRetryable(String),
    /// An error of the operator's own type, with its facts.
    ///
    /// Retry: as stated. Effect: as stated.
    #[error("operator stopped on `{code}`")]
    #[non_exhaustive]
    Failed {
        /// The code of the error inside.
        code: &'static str,
        /// Its retry answer.
        retry: Retry,
        /// Its effect answer.
        effect: Effect,
        /// Its answer about other endpoints.
        elsewhere: Elsewhere,
        /// Whether it counts against its endpoint.
        counts_against: bool,
        /// Further details, if the error has any.
        kept: Option<Box<ErrorDetails>>,
        /// The error inside.
        source: BoxError,
    },
    /// Any other error.
    ///
    /// Retry: never. Effect: unknown.
    #[error("operator failed in an unclassified way")]
    Other(#[from] BoxError),
}

/// A step that was finished before another one failed.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct StepDone {
    /// The step's name, such as `2`.
    pub step: Box<str>,
    /// The operator of the step.
    pub operator: Box<str>,
    /// The run of the step, if its operator records one.
    pub run: Option<RunId>,
    /// The step's output.
    pub output: Value,
}

impl StepDone {
    /// Creates a step without a recorded run.
    pub fn new(step: impl Into<Box<str>>, operator: impl Into<Box<str>>, output: Value) -> Self {
        Self { step: step.into(), operator: operator.into(), run: None, output }
    }

    /// Sets the recorded run of the step.
    #[must_use]
    pub fn run(self, run: Option<RunId>) -> Self {
        Self { run, ..self }
    }
}

/// Details of an error in addition to its facts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorDetails {
    /// The retry answer for a caller that repeats nothing.
    later: Retry,
    /// The error's own hint.
    hint: Option<Cow<'static, str>>,
}

impl ErrorDetails {
    fn from_error(error: &impl Failure, retry: Retry, later: Retry) -> Option<Box<Self>> {
        let hint = error.hint().map(|hint| hint.into_owned().into());
        (hint.is_some() || later != retry).then(|| Box::new(Self { later, hint }))
    }
}

impl OperatorError {
    /// Wraps a provider error, keeping its facts.
    pub fn model<E: Failure + Send + Sync + 'static>(error: E) -> Self {
        // An operator has no second endpoint of the same model.
        let Facts { code, retry, later, effect, elsewhere, counts_against, beside: _, sent: _ } =
            stated_facts(&error);
        Self::Model {
            code,
            retry,
            effect,
            elsewhere,
            counts_against,
            kept: ErrorDetails::from_error(&error, retry, later),
            source: Box::new(error),
        }
    }

    /// Wraps the orchestrator's error for a dispatch of `operator`, keeping its facts.
    pub fn sub_dispatch(operator: impl Into<Box<str>>, error: OrchError) -> Self {
        Self::SubDispatch {
            operator: operator.into(),
            message: error.code().into(),
            done: Box::default(),
            source: Some(error.into()),
        }
    }

    /// Creates the error for an `operator` that could not be dispatched at all, because of `message`.
    pub fn cannot_dispatch(operator: impl Into<Box<str>>, message: impl Into<Box<str>>) -> Self {
        Self::SubDispatch {
            operator: operator.into(),
            message: message.into(),
            done: Box::default(),
            source: None,
        }
    }

    /// Sets the steps that were finished before another operator failed; has no effect on other errors.
    #[must_use]
    pub fn after(mut self, steps: Vec<StepDone>) -> Self {
        if let Self::SubDispatch { done, .. } = &mut self {
            *done = steps.into();
        }
        self
    }

    /// Wraps any other error of the operator, keeping its facts.
    pub fn from_failure<E: Failure + Send + Sync + 'static>(error: E) -> Self {
        // An operator has no second endpoint of the same model.
        let Facts { code, retry, later, effect, elsewhere, counts_against, beside: _, sent: _ } =
            stated_facts(&error);
        Self::Failed {
            code,
            retry,
            effect,
            elsewhere,
            counts_against,
            kept: ErrorDetails::from_error(&error, retry, later),
            source: Box::new(error),
        }
    }
}

impl Failure for OperatorError {
    fn facts(&self) -> Facts {
        match self {
            Self::Model { code, retry, effect, elsewhere, counts_against, kept, .. }
            | Self::Failed { code, retry, effect, elsewhere, counts_against, kept, .. } => {
                Facts::new(code, *retry, *effect)
                    .with_later(kept.as_ref().map_or(*retry, |kept| kept.later))
                    .with_elsewhere(*elsewhere)
                    .with_counts_against(*counts_against)
            }
            Self::SubDispatch { source: Some(error), .. } => error.facts(),
            Self::SubDispatch { source: None, .. } => {
                Facts::never(code::OPERATOR_SUB_DISPATCH, Effect::Unknown)
            }
            Self::ContextAssembly(_) => Facts::never(code::OPERATOR_CONTEXT_ASSEMBLY, Effect::None),
            Self::Retryable(_) => Facts::backoff(code::OPERATOR_RETRYABLE, Effect::None),
            Self::NonRetryable(_) => Facts::never(code::OPERATOR_NON_RETRYABLE, Effect::Unknown),
            Self::Other(_) => Facts::never(code::OPERATOR_OTHER, Effect::Unknown),
        }
    }

    fn hint(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Model { kept, .. } | Self::Failed { kept, .. } => {
                kept.as_ref()?.hint.as_deref().map(Cow::Borrowed)
            }
            Self::SubDispatch { source, .. } => source.as_ref().and_then(|error| error.hint()),
            Self::ContextAssembly(_)
            | Self::Retryable(_)
            | Self::NonRetryable(_)
            | Self::Other(_) => None,
        }
    }
}

impl From<Exhausted<OperatorError>> for OperatorError {
    fn from(exhausted: Exhausted<OperatorError>) -> Self {
        Self::from_failure(exhausted)
    }
}

inherent_is_retryable!(OperatorError);
