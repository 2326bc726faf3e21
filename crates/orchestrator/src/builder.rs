//! The builder of an orchestrator.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::EventLog;
use backstop_retry::{Jitter, RetryConfig, RetryPolicy};
use backstop_tool::SchemaError;
use layer0::name::{NameError, check_name};
use layer0::orchestrator::UnknownOperator;
use layer0::{Operator, Orchestrator};
use thiserror::Error;
use tokio::sync::Semaphore;

use crate::checked::CheckedOperator;
use crate::inner::{OrchestratorInner, Retrying};
use crate::local::LocalOrchestrator;
use layer0::code;
use layer0::failure::{Effect, Facts, Failure};

/// Default limit for the depth of dispatches.
const MAX_DEPTH: u32 = 8;

/// Builder of a [`LocalOrchestrator`].
#[must_use = "an orchestrator is made by `build`"]
pub struct LocalOrchestratorBuilder {
    operators: Vec<Arc<dyn Operator>>,
    retry: RetryConfig,
    reopen: RetryConfig,
    jitter: Jitter,
    clock: Arc<dyn Clock>,
    log: Option<Arc<dyn EventLog>>,
    max_concurrent: usize,
    max_depth: u32,
    max_park: Option<Duration>,
    leaves_parked: bool,
}

impl LocalOrchestrator {
    /// Returns a builder without operators.
    pub fn builder() -> LocalOrchestratorBuilder {
        // The deadline of model calls would leave an operator that takes longer with one attempt.
        let retry = RetryConfig::new().deadline(Duration::MAX);
        LocalOrchestratorBuilder {
            operators: Vec::new(),
            retry,
            reopen: retry.attempts(2),
            jitter: Jitter::Random,
            clock: Arc::new(SystemClock),
            log: None,
            max_concurrent: 64,
            max_depth: MAX_DEPTH,
            max_park: None,
            leaves_parked: false,
        }
    }
}

impl LocalOrchestratorBuilder {
    /// Registers an operator under its name.
    pub fn operator(self, operator: impl Operator + 'static) -> Self {
        self.shared_operator(Arc::new(operator))
    }

    /// Registers a shared operator under its name.
    pub fn shared_operator(mut self, operator: Arc<dyn Operator>) -> Self {
        self.operators.push(operator);
        self
    }

    /// Sets the retries of dispatches of operators that start again from the beginning; 3 attempts without a deadline by
    /// default. The deadline of a dispatch holds for all its attempts.
    pub fn retry(mut self, retry: RetryConfig) -> Self {
        self.retry = retry;
        self
    }

    /// Sets the retries of dispatches of operators that continue after a failure, such as agents with a log; 2 attempts
    /// without a deadline by default.
    pub fn reopen(mut self, retry: RetryConfig) -> Self {
        self.reopen = retry;
        self
    }

    /// Draws the waits between attempts from this jitter.
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// Takes the time from this clock.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the log of the runs, so that signals and queries reach a run in whichever process it is. Without a log,
    /// only the dispatches of this orchestrator are known.
    pub fn shared_log(mut self, log: Arc<dyn EventLog>) -> Self {
        self.log = Some(log);
        self
    }

    /// Limits the number of concurrent first-level dispatches; 64 by default, at least 1.
    pub fn max_concurrent(mut self, dispatches: usize) -> Self {
        self.max_concurrent = dispatches.max(1);
        self
    }

    /// Limits how deep operators may call each other; 8 by default.
    pub fn max_depth(mut self, depth: u32) -> Self {
        self.max_depth = depth;
        self
    }

    /// Sets the longest time for which a dispatch may be parked when an endpoint asks for a wait, for tasks that
    /// do not set it themselves. A parked dispatch returns its permit, and its run continues when it is due, also in
    /// another process ([`LocalOrchestrator::resume`]). Without this limit nothing is parked, and such a dispatch
    /// fails.
    pub fn max_park(mut self, longest: Duration) -> Self {
        self.max_park = Some(longest);
        self
    }

    /// Returns a parked dispatch at once, with [`Answer::parked_until`](layer0::operator::Answer::parked_until),
    /// instead of waiting: its caller has to resume the run when it is due.
    pub const fn leaves_parked(mut self) -> Self {
        self.leaves_parked = true;
        self
    }

    /// Builds the orchestrator.
    ///
    /// # Errors
    ///
    /// [`OperatorNameError`] if an operator has an invalid name, two operators have one name, a schema cannot be used,
    /// or an operator dispatches one that is not registered.
    pub fn build(mut self) -> Result<LocalOrchestrator, OperatorNameError> {
        let mut operators = BTreeMap::new();
        for operator in std::mem::take(&mut self.operators) {
            check_name(operator.name())?;
            match operators.entry(operator.name().to_owned()) {
                Entry::Vacant(entry) => {
                    let name = entry.key().clone();
                    let unusable = |source| OperatorNameError::Schema { operator: name, source };
                    entry.insert(Arc::new(CheckedOperator::new(operator).map_err(unusable)?));
                }
                Entry::Occupied(entry) => {
                    return Err(OperatorNameError::Duplicate(entry.key().clone()));
                }
            }
        }
        let orchestrator = self.with(operators);
        for checked in orchestrator.inner.operators.values() {
            let calls = checked.operator.calls();
            let missing = calls.into_iter().find_map(|name| orchestrator.unknown(name));
            if let Some(source) = missing {
                let operator = checked.operator.name().to_owned();
                return Err(OperatorNameError::Unknown { operator, source });
            }
        }
        Ok(orchestrator)
    }

    /// Builds an orchestrator without names, for callers that hold their operators themselves
    /// ([`Orchestrator::perform`]). Registered operators are left out.
    #[must_use]
    pub fn build_unnamed(self) -> LocalOrchestrator {
        self.with(BTreeMap::new())
    }

    fn with(self, operators: BTreeMap<String, Arc<CheckedOperator>>) -> LocalOrchestrator {
        let policy =
            |config| RetryPolicy::new(config, Arc::clone(&self.clock)).jitter(self.jitter.clone());
        let retry = Retrying {
            anew: policy(self.retry),
            anew_attempts: self.retry.attempts,
            on: policy(self.reopen),
            on_attempts: self.reopen.attempts,
        };
        LocalOrchestrator {
            inner: Arc::new_cyclic(|this| OrchestratorInner {
                operators,
                retry,
                clock: self.clock,
                log: self.log,
                places: Arc::new(Semaphore::new(self.max_concurrent)),
                max_depth: self.max_depth,
                max_park: self.max_park,
                leaves_parked: self.leaves_parked,
                in_flight: Arc::default(),
                this: this.clone(),
            }),
        }
    }
}

/// An error that keeps operators from being dispatched by their names.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OperatorNameError {
    /// Two operators have this name.
    ///
    /// Retry: never. Effect: none.
    #[error("there is already an operator named `{0}`")]
    Duplicate(String),
    /// The name of an operator is invalid.
    ///
    /// Retry: never. Effect: none.
    #[error("invalid operator")]
    Name(#[from] NameError),
    /// A schema of an operator is not a JSON Schema.
    ///
    /// Retry: never. Effect: none.
    #[error("a schema of operator `{operator}` cannot be used")]
    #[non_exhaustive]
    Schema {
        /// The operator.
        operator: String,
        /// The defect of the schema.
        source: SchemaError,
    },
    /// An operator dispatches an operator that is not registered.
    ///
    /// Retry: never. Effect: none.
    #[error("operator `{operator}` dispatches one that is not registered")]
    #[non_exhaustive]
    Unknown {
        /// The operator.
        operator: String,
        /// The operator that is not registered.
        source: UnknownOperator,
    },
}

impl Failure for OperatorNameError {
    fn facts(&self) -> Facts {
        match self {
            Self::Duplicate(_) | Self::Name(_) | Self::Schema { .. } | Self::Unknown { .. } => {
                Facts::never(code::CONFIG_INVALID, Effect::None)
            }
        }
    }
}
