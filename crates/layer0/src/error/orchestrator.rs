use std::borrow::Cow;

use thiserror::Error;

use super::boxed::BoxError;
use super::operator::OperatorError;
use crate::code;
use crate::failure::{Effect, Exhausted, Facts, Failure, chain};

/// The reason a dispatch, a signal or a query failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OrchError {
    /// No operator is registered under this name.
    ///
    /// Retry: never. Effect: none.
    #[error("no operator named `{0}`")]
    OperatorNotFound(String),
    /// No dispatch is in flight under this id.
    ///
    /// Retry: never. Effect: none.
    #[error("no workflow `{0}` in flight")]
    WorkflowNotFound(String),
    /// The dispatch itself failed: it could not be started, or its task was lost.
    ///
    /// Retry: never. Effect: unknown.
    #[error("dispatch failed: {0}")]
    DispatchFailed(String),
    /// The deadline had passed before the operator could start.
    ///
    /// Retry: never. Effect: none.
    #[error("the deadline has passed: {0}")]
    DeadlinePassed(String),
    /// The operator would exceed the maximum depth of dispatches; it did not start.
    ///
    /// Retry: never. Effect: none.
    #[error("too deep: {0}")]
    TooDeep(String),
    /// The operator panicked, or its task was lost.
    ///
    /// Retry: never. Effect: unknown.
    #[error("operator panicked: {0}")]
    Panicked(String),
    /// The orchestrator is shut down; the operator did not start.
    ///
    /// Retry: never. Effect: none.
    #[error("orchestrator is shut down: {0}")]
    Shutdown(String),
    /// The signal could not be delivered.
    ///
    /// Retry: never. Effect: none.
    #[error("signal failed: {0}")]
    SignalFailed(String),
    /// The operator ran and failed.
    ///
    /// Retry: as the operator's error says. Effect: as the operator's error says.
    #[error("operator failed")]
    OperatorError(#[from] OperatorError),
    /// Any other error.
    ///
    /// Retry: never. Effect: unknown.
    #[error("orchestrator failed in an unclassified way")]
    Other(#[from] BoxError),
}

impl Failure for OrchError {
    fn facts(&self) -> Facts {
        match self {
            Self::OperatorNotFound(_) => Facts::never(code::ORCH_OPERATOR_NOT_FOUND, Effect::None),
            Self::WorkflowNotFound(_) => Facts::never(code::ORCH_WORKFLOW_NOT_FOUND, Effect::None),
            Self::DispatchFailed(_) => Facts::never(code::ORCH_DISPATCH_FAILED, Effect::Unknown),
            Self::DeadlinePassed(_) => Facts::never(code::ORCH_DEADLINE, Effect::None),
            Self::TooDeep(_) => Facts::never(code::ORCH_DEPTH, Effect::None),
            Self::Panicked(_) => Facts::never(code::ORCH_PANICKED, Effect::Unknown),
            Self::Shutdown(_) => Facts::never(code::ORCH_SHUTDOWN, Effect::None),
            Self::SignalFailed(_) => Facts::never(code::ORCH_SIGNAL_FAILED, Effect::None),
            Self::OperatorError(error) => error.facts(),
            Self::Other(_) => Facts::never(code::ORCH_OTHER, Effect::Unknown),
        }
    }

    fn hint(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::OperatorError(error) => error.hint(),
            Self::OperatorNotFound(_)
            | Self::WorkflowNotFound(_)
            | Self::DispatchFailed(_)
            | Self::DeadlinePassed(_)
            | Self::TooDeep(_)
            | Self::Panicked(_)
            | Self::Shutdown(_)
            | Self::SignalFailed(_)
            | Self::Other(_) => None,
        }
    }
}

impl OrchError {
    /// Creates the error for an operator that panicked.
    pub fn from_panic(why: impl Into<String>) -> Self {
        Self::Panicked(why.into())
    }

    /// Returns the messages of the failure, outermost first, without those of the errors that only wrap it.
    #[must_use]
    pub fn messages(&self) -> Vec<String> {
        match self {
            Self::OperatorError(OperatorError::Failed { source, .. }) => chain(&**source),
            Self::OperatorError(error) => chain(error),
            error => chain(error),
        }
    }
}

impl From<Exhausted<OrchError>> for OrchError {
    fn from(exhausted: Exhausted<OrchError>) -> Self {
        Self::OperatorError(OperatorError::from_failure(exhausted))
    }
}

inherent_is_retryable!(OrchError);
