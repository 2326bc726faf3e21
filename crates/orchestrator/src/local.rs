use std::any::Any;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use async_trait::async_trait;
use backstop_clock::{Clock, SystemClock};
use backstop_retry::{Jitter, RetryConfig, RetryPolicy};
use futures_util::FutureExt;
use futures_util::future::join_all;
use layer0::error::OrchError;
use layer0::id::WorkflowId;
use layer0::name::{NameError, check_name};
use layer0::operator::{Answer, Context, Signal, Signals, Task};
use layer0::{Operator, Orchestrator, Timestamp};
use serde_json::{Value, json};
use thiserror::Error;
use tokio::sync::Semaphore;
use tower::{Layer, ServiceExt};

use crate::dispatch::{Dispatch, Run};

/// How deep operators may call each other.
const MAX_DEPTH: u32 = 8;
/// How many signals wait for an operator before further ones are refused.
const MAX_SIGNALS: usize = 256;

/// Dispatches operators in this process. Clones share it.
#[derive(Clone)]
pub struct LocalOrchestrator {
    inner: Arc<Inner>,
}

struct Inner {
    operators: BTreeMap<String, Arc<dyn Operator>>,
    retry: RetryPolicy,
    clock: Arc<dyn Clock>,
    /// Places for first-level dispatches. Sub-dispatches run in their caller's place, so that
    /// callers that wait for each other never wait for a place.
    places: Semaphore,
    max_depth: u32,
    in_flight: Mutex<BTreeMap<WorkflowId, InFlight>>,
    /// For operators that dispatch: does not keep the orchestrator alive.
    this: Weak<Inner>,
}

struct InFlight {
    operator: String,
    depth: u32,
    started: Timestamp,
    signals: Signals,
}

/// Puts a [`LocalOrchestrator`] together.
#[must_use = "an orchestrator is made by `build`"]
pub struct LocalOrchestratorBuilder {
    operators: Vec<Arc<dyn Operator>>,
    retry: RetryConfig,
    jitter: Jitter,
    clock: Arc<dyn Clock>,
    max_concurrent: usize,
    max_depth: u32,
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

    /// Sets how dispatches are retried.
    pub fn retry(mut self, retry: RetryConfig) -> Self {
        self.retry = retry;
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

    /// Makes the orchestrator.
    ///
    /// # Errors
    ///
    /// [`OperatorNameError`], when an operator cannot be called what it is, or two have one name.
    pub fn build(self) -> Result<LocalOrchestrator, OperatorNameError> {
        let mut operators = BTreeMap::new();
        for operator in self.operators {
            check_name(operator.name())?;
            match operators.entry(operator.name().to_owned()) {
                Entry::Vacant(entry) => entry.insert(operator),
                Entry::Occupied(entry) => {
                    return Err(OperatorNameError::Duplicate(entry.key().clone()));
                }
            };
        }
        let retry = RetryPolicy::new(self.retry, Arc::clone(&self.clock)).jitter(self.jitter);
        Ok(LocalOrchestrator {
            inner: Arc::new_cyclic(|this| Inner {
                operators,
                retry,
                clock: self.clock,
                places: Semaphore::new(self.max_concurrent),
                max_depth: self.max_depth,
                in_flight: Mutex::default(),
                this: this.clone(),
            }),
        })
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
}

impl LocalOrchestrator {
    /// Begins an orchestrator without operators.
    pub fn builder() -> LocalOrchestratorBuilder {
        LocalOrchestratorBuilder {
            operators: Vec::new(),
            retry: RetryConfig::default(),
            jitter: Jitter::Random,
            clock: Arc::new(SystemClock),
            max_concurrent: 64,
            max_depth: MAX_DEPTH,
        }
    }

    /// Returns the dispatches in flight, for signals and queries.
    #[must_use]
    pub fn in_flight(&self) -> Vec<WorkflowId> {
        self.inner.in_flight().keys().cloned().collect()
    }
}

impl Inner {
    fn in_flight(&self) -> MutexGuard<'_, BTreeMap<WorkflowId, InFlight>> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a dispatch until the returned guard is dropped.
    fn enter(&self, operator: &str, depth: u32, signals: &Signals) -> Entered<'_> {
        let id = WorkflowId::new(format!("wf_{}", uuid::Uuid::now_v7()));
        let flight = InFlight {
            operator: operator.to_owned(),
            depth,
            started: self.clock.now(),
            signals: signals.clone(),
        };
        self.in_flight().insert(id.clone(), flight);
        Entered { inner: self, id }
    }

    async fn run(&self, operator: &str, task: Task, context: Context) -> Result<Answer, OrchError> {
        let found = self
            .operators
            .get(operator)
            .ok_or_else(|| OrchError::OperatorNotFound(operator.to_owned()))?;
        if context.depth > self.max_depth {
            let why = format!(
                "`{operator}` would be {} levels deep, {} are allowed",
                context.depth, self.max_depth
            );
            return Err(OrchError::DispatchFailed(why));
        }
        let now = self.clock.now();
        if context.deadline.is_some_and(|deadline| deadline <= now) {
            return Err(OrchError::DispatchFailed(format!(
                "the deadline of `{operator}` has passed"
            )));
        }
        let _place = match context.depth {
            0 => Some(self.places.acquire().await.map_err(|error| OrchError::Other(error.into()))?),
            _ => None,
        };
        let _entered = self.enter(operator, context.depth, &context.signals);
        let deadline = context.deadline;
        let dispatch = Dispatch { operator: Arc::clone(found), task, context };
        let attempts = AssertUnwindSafe(self.retry.clone().layer().layer(Run).oneshot(dispatch));
        let attempts = attempts.catch_unwind();
        let result = match deadline {
            None => attempts.await,
            Some(deadline) => {
                let limit = self.clock.sleep(deadline.since(now));
                tokio::select! {
                    result = attempts => result,
                    () = limit => {
                        let why = format!("the deadline of `{operator}` has passed");
                        return Err(OrchError::DispatchFailed(why));
                    }
                }
            }
        };
        result.unwrap_or_else(|panic| {
            let why = format!("`{operator}` panicked: {}", panic_text(&*panic));
            Err(OrchError::DispatchFailed(why))
        })
    }
}

#[async_trait]
impl Orchestrator for LocalOrchestrator {
    async fn dispatch(
        &self,
        operator: &str,
        task: Task,
        mut context: Context,
    ) -> Result<Answer, OrchError> {
        context.orchestrator = Some(Arc::new(Handle(self.inner.this.clone())));
        self.inner.run(operator, task, context).await
    }

    async fn dispatch_many(
        &self,
        tasks: Vec<(String, Task)>,
        context: Context,
    ) -> Vec<Result<Answer, OrchError>> {
        let dispatches = tasks.into_iter().map(|(operator, task)| {
            let mut context = context.clone();
            context.signals = Signals::default();
            async move { self.dispatch(&operator, task, context).await }
        });
        join_all(dispatches).await
    }

    async fn signal(&self, workflow: &WorkflowId, signal: Signal) -> Result<(), OrchError> {
        let in_flight = self.inner.in_flight();
        let flight = in_flight
            .get(workflow)
            .ok_or_else(|| OrchError::WorkflowNotFound(workflow.to_string()))?;
        if flight.signals.waiting() >= MAX_SIGNALS {
            let why = format!("`{}` has not taken {MAX_SIGNALS} signals", flight.operator);
            return Err(OrchError::SignalFailed(why));
        }
        flight.signals.push(signal);
        Ok(())
    }

    async fn query(&self, workflow: &WorkflowId) -> Result<Value, OrchError> {
        let in_flight = self.inner.in_flight();
        let flight = in_flight
            .get(workflow)
            .ok_or_else(|| OrchError::WorkflowNotFound(workflow.to_string()))?;
        Ok(json!({
            "operator": flight.operator,
            "depth": flight.depth,
            "started_at": flight.started,
        }))
    }
}

impl fmt::Debug for LocalOrchestrator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalOrchestrator")
            .field("operators", &self.inner.operators.keys())
            .finish_non_exhaustive()
    }
}

struct Entered<'a> {
    inner: &'a Inner,
    id: WorkflowId,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.inner.in_flight().remove(&self.id);
    }
}

/// What an operator dispatches through.
struct Handle(Weak<Inner>);

impl Handle {
    fn orchestrator(&self) -> Result<LocalOrchestrator, OrchError> {
        let gone = || OrchError::DispatchFailed("the orchestrator is gone".to_owned());
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
                tasks.iter().map(|_| Err(OrchError::DispatchFailed(why.clone()))).collect()
            }
        }
    }

    async fn signal(&self, workflow: &WorkflowId, signal: Signal) -> Result<(), OrchError> {
        self.orchestrator()?.signal(workflow, signal).await
    }

    async fn query(&self, workflow: &WorkflowId) -> Result<Value, OrchError> {
        self.orchestrator()?.query(workflow).await
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a value that is no text".to_owned())
}
