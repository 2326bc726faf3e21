use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{Clock, SystemClock};
use backstop_event_log::EventLog;
use backstop_retry::{Jitter, RetryConfig, RetryPolicy};
use backstop_tool::{SchemaError, nearest};
use futures_util::future::join_all;
use layer0::error::OrchError;
use layer0::id::{RunId, WorkflowId};
use layer0::name::{NameError, check_name};
use layer0::operator::{Answer, Context, Signal, Task};
use layer0::orchestrator::UnknownOperator;
use layer0::{Operator, Orchestrator, code};
use serde_json::Value;
use thiserror::Error;
use tokio::sync::Semaphore;

use crate::between::NothingLeft;
use crate::checked::Checked;
use crate::in_flight::{Flight, InFlight};
use crate::inner::{Inner, Retrying};
use crate::many::{many, new_run};
use crate::outside;
use crate::task::{self, Performance};

/// How deep operators may call each other.
const MAX_DEPTH: u32 = 8;

/// Dispatches operators in this process. Clones share it.
#[derive(Clone)]
pub struct LocalOrchestrator {
    pub(crate) inner: Arc<Inner>,
}

/// Puts a [`LocalOrchestrator`] together.
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
}

impl LocalOrchestratorBuilder {
    /// Registers an operator under its name.
    pub fn operator(self, operator: impl Operator + 'static) -> Self {
        self.shared_operator(Arc::new(operator))
    }

    /// Registers an operator that is shared.
    pub fn shared_operator(mut self, operator: Arc<dyn Operator>) -> Self {
        self.operators.push(operator);
        self
    }

    /// Sets how dispatches of operators are retried that begin anew.
    pub fn retry(mut self, retry: RetryConfig) -> Self {
        self.retry = retry;
        self
    }

    /// Sets how dispatches of operators are retried that go on where they failed, such as agents with a
    /// log: 2 attempts otherwise, without a deadline.
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

    /// Sends signals to the runs of a log, and answers queries about them, whichever process runs them.
    /// Without a log, only those of this orchestrator are known.
    pub fn shared_log(mut self, log: Arc<dyn EventLog>) -> Self {
        self.log = Some(log);
        self
    }

    /// Limits how many first-level dispatches run at once; 64 otherwise, at least 1.
    pub fn max_concurrent(mut self, dispatches: usize) -> Self {
        self.max_concurrent = dispatches.max(1);
        self
    }

    /// Limits how deep operators may call each other; 8 otherwise.
    pub fn max_depth(mut self, depth: u32) -> Self {
        self.max_depth = depth;
        self
    }

    /// Lets dispatches whose task does not say be parked for so long where an endpoint asks to be left alone,
    /// rather than fail: the permit is given back meanwhile, and the run goes on when it is due, also in another
    /// process ([`LocalOrchestrator::resume`]). Nothing is parked otherwise.
    pub fn max_park(mut self, longest: Duration) -> Self {
        self.max_park = Some(longest);
        self
    }

    /// Makes the orchestrator.
    ///
    /// # Errors
    ///
    /// [`OperatorNameError`], when an operator cannot be called what it is, two have one name, a schema
    /// cannot be used, or an operator dispatches one that is not there.
    pub fn build(mut self) -> Result<LocalOrchestrator, OperatorNameError> {
        let mut operators = BTreeMap::new();
        for operator in std::mem::take(&mut self.operators) {
            check_name(operator.name())?;
            match operators.entry(operator.name().to_owned()) {
                Entry::Vacant(entry) => {
                    let name = entry.key().clone();
                    let unusable = |source| OperatorNameError::Schema { operator: name, source };
                    entry.insert(Arc::new(Checked::new(operator).map_err(unusable)?));
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

    /// Makes an orchestrator without names, for operators that its callers have at hand
    /// ([`Orchestrator::perform`]). What was registered is left out.
    #[must_use]
    pub fn build_unnamed(self) -> LocalOrchestrator {
        self.with(BTreeMap::new())
    }

    fn with(self, operators: BTreeMap<String, Arc<Checked>>) -> LocalOrchestrator {
        let policy =
            |config| RetryPolicy::new(config, Arc::clone(&self.clock)).jitter(self.jitter.clone());
        let retry = Retrying {
            anew: policy(self.retry),
            anew_attempts: self.retry.attempts,
            on: policy(self.reopen),
            on_attempts: self.reopen.attempts,
        };
        LocalOrchestrator {
            inner: Arc::new_cyclic(|this| Inner {
                operators,
                retry,
                clock: self.clock,
                log: self.log,
                places: Arc::new(Semaphore::new(self.max_concurrent)),
                max_depth: self.max_depth,
                max_park: self.max_park,
                in_flight: Arc::default(),
                this: this.clone(),
            }),
        }
    }
}

/// Says why operators cannot be dispatched by their names.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OperatorNameError {
    /// There are two operators of this name.
    #[error("there is already an operator named `{0}`")]
    Duplicate(String),
    /// An operator cannot be called so.
    #[error("invalid operator")]
    Name(#[from] NameError),
    /// A schema of an operator is no JSON Schema.
    #[error("a schema of operator `{operator}` cannot be used")]
    #[non_exhaustive]
    Schema {
        /// The operator.
        operator: String,
        /// What is wrong with it.
        source: SchemaError,
    },
    /// An operator dispatches one that is not there.
    #[error("operator `{operator}` dispatches one that is not registered")]
    #[non_exhaustive]
    Unknown {
        /// The operator.
        operator: String,
        /// What it dispatches.
        source: UnknownOperator,
    },
}

impl LocalOrchestrator {
    /// Begins an orchestrator without operators.
    pub fn builder() -> LocalOrchestratorBuilder {
        let reopen = RetryConfig::new().attempts(2).deadline(Duration::MAX);
        LocalOrchestratorBuilder {
            operators: Vec::new(),
            retry: RetryConfig::default(),
            reopen,
            jitter: Jitter::Random,
            clock: Arc::new(SystemClock),
            log: None,
            max_concurrent: 64,
            max_depth: MAX_DEPTH,
            max_park: None,
        }
    }

    /// Goes on with a run of an operator that keeps a record of it: one that waits for a person or whose
    /// process died is taken up, with all that it dispatched; one that has ended is answered from its record.
    ///
    /// # Errors
    ///
    /// As [`Orchestrator::dispatch`].
    ///
    /// # Cancel safety
    ///
    /// As [`Orchestrator::dispatch`]; the run can be gone on with again.
    pub async fn resume(&self, operator: &str, run: RunId) -> Result<Answer, OrchError> {
        let mut context = Context::root();
        (context.run, context.goes_on, context.is_recorded) = (Some(run), true, true);
        // What it was asked stands in its record.
        self.dispatch(operator, Task::json(Value::Null), context).await
    }

    /// Returns the dispatches in flight, for signals and queries. Each goes by the id of its run.
    #[must_use]
    pub fn in_flight(&self) -> Vec<WorkflowId> {
        self.inner.in_flight.ids()
    }
}

impl Inner {
    pub(crate) async fn run(
        &self,
        operator: &str,
        task: Task,
        mut context: Context,
    ) -> Result<Answer, OrchError> {
        let found = self
            .operators
            .get(operator)
            .ok_or_else(|| OrchError::OperatorNotFound(operator.to_owned()))?;
        context.orchestrator = Some(self.handle());
        self.perform(Arc::clone(found), task, context).await
    }

    async fn perform(
        &self,
        checked: Arc<Checked>,
        task: Task,
        mut context: Context,
    ) -> Result<Answer, OrchError> {
        let operator = checked.operator.name();
        if context.depth > self.max_depth {
            return Err(OrchError::TooDeep(format!(
                "`{operator}` would be {} levels deep, {} are allowed",
                context.depth, self.max_depth
            )));
        }
        let bounds_cost = task.allowance.is_some_and(|it| it.cost_nanousd.is_some());
        if bounds_cost && !checked.operator.is_priced() {
            return Err(NothingLeft::of(checked.operator.name(), code::ORCH_PRICE_UNKNOWN));
        }
        context.max_park = task.max_park.or(context.max_park).or(self.max_park);
        if !context.goes_on {
            checked.check_input(&task.input)?;
        }
        let run = context.run.get_or_insert_with(new_run);
        let id = WorkflowId::new(run.as_str());
        let flight = Flight {
            operator: operator.to_owned(),
            depth: context.depth,
            started: self.clock.now(),
            signals: context.signals.clone(),
        };
        let entered = InFlight::enter(&self.in_flight, id, flight);
        task::perform(self, Performance { checked, task, context, entered }).await
    }

    fn unknown(&self, operator: &str) -> Option<UnknownOperator> {
        let names = self.operators.keys().map(String::as_str);
        let is_known = self.operators.contains_key(operator);
        (!is_known).then(|| UnknownOperator::new(operator, nearest(operator, names)))
    }

    fn handle(&self) -> Arc<dyn Orchestrator> {
        Arc::new(Handle(self.this.clone()))
    }
}

#[async_trait]
impl Orchestrator for LocalOrchestrator {
    async fn dispatch(
        &self,
        operator: &str,
        task: Task,
        context: Context,
    ) -> Result<Answer, OrchError> {
        self.inner.run(operator, task, context).await
    }

    async fn dispatch_many(
        &self,
        tasks: Vec<(String, Task)>,
        context: Context,
    ) -> Vec<Result<Answer, OrchError>> {
        let contexts = many(&context, tasks.len());
        let dispatches =
            tasks.into_iter().zip(contexts).map(|((operator, task), context)| async move {
                self.dispatch(&operator, task, context).await
            });
        join_all(dispatches).await
    }

    async fn perform(
        &self,
        operator: Arc<dyn Operator>,
        task: Task,
        context: Context,
    ) -> Result<Answer, OrchError> {
        let checked = Arc::new(Checked::unregistered(operator)?);
        self.inner.perform(checked, task, context).await
    }

    fn unknown(&self, operator: &str) -> Option<UnknownOperator> {
        self.inner.unknown(operator)
    }

    fn is_priced(&self, operator: &str) -> bool {
        let found = self.inner.operators.get(operator);
        found.is_none_or(|found| found.operator.is_priced())
    }

    fn can_go_on(&self, operator: &str) -> bool {
        let found = self.inner.operators.get(operator);
        found.is_some_and(|found| found.operator.can_go_on())
    }

    async fn signal(&self, workflow: &WorkflowId, signal: Signal) -> Result<(), OrchError> {
        outside::signal(&self.inner, workflow, signal).await
    }

    async fn query(&self, workflow: &WorkflowId) -> Result<Value, OrchError> {
        outside::query(&self.inner, workflow).await
    }
}

impl fmt::Debug for LocalOrchestrator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalOrchestrator")
            .field("operators", &self.inner.operators.keys())
            .finish_non_exhaustive()
    }
}

/// What an operator dispatches through.
struct Handle(Weak<Inner>);

impl Handle {
    fn orchestrator(&self) -> Result<LocalOrchestrator, OrchError> {
        let gone = || OrchError::Shutdown("it was dropped".to_owned());
        self.0.upgrade().map(|inner| LocalOrchestrator { inner }).ok_or_else(gone)
    }
}

#[async_trait]
impl Orchestrator for Handle {
    async fn dispatch(
        &self,
        operator: &str,
        task: Task,
        context: Context,
    ) -> Result<Answer, OrchError> {
        self.orchestrator()?.dispatch(operator, task, context).await
    }

    async fn dispatch_many(
        &self,
        tasks: Vec<(String, Task)>,
        context: Context,
    ) -> Vec<Result<Answer, OrchError>> {
        match self.orchestrator() {
            Ok(orchestrator) => orchestrator.dispatch_many(tasks, context).await,
            Err(error) => {
                let why = error.to_string();
                tasks.iter().map(|_| Err(OrchError::Shutdown(why.clone()))).collect()
            }
        }
    }

    async fn perform(
        &self,
        operator: Arc<dyn Operator>,
        task: Task,
        context: Context,
    ) -> Result<Answer, OrchError> {
        self.orchestrator()?.perform(operator, task, context).await
    }

    fn unknown(&self, operator: &str) -> Option<UnknownOperator> {
        self.orchestrator().ok()?.unknown(operator)
    }

    fn is_priced(&self, operator: &str) -> bool {
        self.orchestrator().is_ok_and(|orchestrator| orchestrator.is_priced(operator))
    }

    fn can_go_on(&self, operator: &str) -> bool {
        self.orchestrator().is_ok_and(|orchestrator| orchestrator.can_go_on(operator))
    }

    async fn signal(&self, workflow: &WorkflowId, signal: Signal) -> Result<(), OrchError> {
        self.orchestrator()?.signal(workflow, signal).await
    }

    async fn query(&self, workflow: &WorkflowId) -> Result<Value, OrchError> {
        self.orchestrator()?.query(workflow).await
    }
}
