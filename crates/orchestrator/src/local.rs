use std::fmt;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use backstop_tool::nearest;
use futures_util::future::join_all;
use layer0::error::OrchError;
use layer0::id::{RunId, WorkflowId};
use layer0::operator::{Answer, Context, Signal, Task};
use layer0::orchestrator::UnknownOperator;
use layer0::{Operator, Orchestrator, code};
use serde_json::Value;

use crate::between::CallerBudgetExhausted;
use crate::checked::CheckedOperator;
use crate::ids::new_run_id;
use crate::in_flight::{ActiveDispatch, ActiveDispatches};
use crate::inner::OrchestratorInner;
use crate::many::many;
use crate::outside;
use crate::task::{self, Performance, SpawnedDispatch};

/// Orchestrator that runs operators in this process. Clones share it.
#[derive(Clone)]
pub struct LocalOrchestrator {
    pub(crate) inner: Arc<OrchestratorInner>,
}

impl LocalOrchestrator {
    /// Resumes a run of an operator that keeps a record, together with its child runs, after a wait for a person or
    /// after its process died. A run that has ended is answered from its record.
    ///
    /// # Errors
    ///
    /// As [`Orchestrator::dispatch`].
    ///
    /// # Cancel safety
    ///
    /// As [`Orchestrator::dispatch`]; the run can be resumed again.
    pub async fn resume(&self, operator: &str, run: RunId) -> Result<Answer, OrchError> {
        self.resume_in(Context::root(), operator, run).await
    }

    /// Resumes a run as [`resume`](Self::resume) does, although its record or that of a child run has lost events that
    /// were acknowledged: a person has checked what the run did, and accepts the loss. The record notes the acceptance.
    ///
    /// A workflow answers steps that may have acted in the lost events as interrupted, unless their tasks are
    /// idempotent: as many steps without a record as events were lost. An agent answers calls without a recorded answer
    /// as interrupted.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use async_trait::async_trait;
    /// use backstop_event_log::MemoryLog;
    /// use backstop_orchestrator::{LocalOrchestrator, Sequence, Workflow};
    /// use layer0::Operator;
    /// use layer0::error::OperatorError;
    /// use layer0::failure::Failure;
    /// use layer0::operator::{Answer, Context, Task};
    ///
    /// struct Draft;
    ///
    /// #[async_trait]
    /// impl Operator for Draft {
    ///     fn name(&self) -> &str {
    ///         "draft"
    ///     }
    ///     async fn run(&self, _: Task, _: &Context) -> Result<Answer, OperatorError> {
    ///         Ok(Answer::from_output("a draft".into()))
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let review = Workflow::new(Sequence::new("review", ["draft"]), Arc::new(MemoryLog::new()));
    /// let orchestrator = LocalOrchestrator::builder().operator(Draft).operator(review).build()?;
    /// let resumed = orchestrator.resume_accepting_lost_tail("review", "run_1".into()).await;
    /// assert_eq!(resumed.unwrap_err().code(), "run.not_found");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Orchestrator::dispatch`].
    ///
    /// # Cancel safety
    ///
    /// As [`Orchestrator::dispatch`]; the run can be resumed again.
    pub async fn resume_accepting_lost_tail(
        &self,
        operator: &str,
        run: RunId,
    ) -> Result<Answer, OrchError> {
        let mut context = Context::root();
        context.accepts_lost_tail = true;
        self.resume_in(context, operator, run).await
    }

    async fn resume_in(
        &self,
        mut context: Context,
        operator: &str,
        run: RunId,
    ) -> Result<Answer, OrchError> {
        (context.run, context.goes_on, context.is_recorded) = (Some(run), true, true);
        // The record has the task.
        self.dispatch(operator, Task::json(Value::Null), context).await
    }

    /// Returns the dispatches in flight, for signals and queries. The id of each is that of its run.
    #[must_use]
    pub fn in_flight(&self) -> Vec<WorkflowId> {
        self.inner.in_flight.ids()
    }
}

/// The functions that begin dispatches are not async: each nested future would reserve room for the task and its
/// context, twice.
impl OrchestratorInner {
    /// Begins a dispatch of a registered operator.
    pub(crate) fn begin(
        &self,
        operator: &str,
        task: Task,
        mut context: Context,
    ) -> Result<SpawnedDispatch, OrchError> {
        let found = self
            .operators
            .get(operator)
            .ok_or_else(|| OrchError::OperatorNotFound(operator.to_owned()))?;
        context.orchestrator = Some(self.handle());
        self.begin_with(Arc::clone(found), task, context)
    }

    fn begin_with(
        &self,
        checked: Arc<CheckedOperator>,
        task: Task,
        mut context: Context,
    ) -> Result<SpawnedDispatch, OrchError> {
        let operator = checked.operator.name();
        if context.depth > self.max_depth {
            return Err(OrchError::TooDeep(format!(
                "`{operator}` would be {} levels deep, {} are allowed",
                context.depth, self.max_depth
            )));
        }
        let bounds_cost = task.allowance.is_some_and(|it| it.cost_nanousd.is_some());
        if bounds_cost && !checked.operator.is_priced() {
            return Err(CallerBudgetExhausted::new_error(
                checked.operator.name(),
                code::ORCH_PRICE_UNKNOWN,
            ));
        }
        context.max_park = task.max_park.or(context.max_park).or(self.max_park);
        if !context.goes_on {
            checked.check_input(&task.input)?;
        }
        let run = context.run.get_or_insert_with(|| new_run_id(self.clock.now()));
        let id = WorkflowId::new(run.as_str());
        let flight = ActiveDispatch {
            operator: operator.to_owned(),
            depth: context.depth,
            // time of day: it is shown.
            started: self.clock.now(),
            signals: context.signals.clone(),
        };
        let entered = ActiveDispatches::enter(&self.in_flight, id, flight);
        Ok(task::spawn(self, Performance { checked, task, context, entered }))
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
        self.inner.begin(operator, task, context)?.join().await
    }

    async fn dispatch_many(
        &self,
        tasks: Vec<(String, Task)>,
        context: Context,
    ) -> Vec<Result<Answer, OrchError>> {
        // time of day: the ids of the runs contain it.
        let contexts = many(&context, tasks.len(), self.inner.clock.now());
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
        let checked = Arc::new(CheckedOperator::new_unregistered(operator)?);
        self.inner.begin_with(checked, task, context)?.join().await
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

/// The orchestrator that operators dispatch through.
struct Handle(Weak<OrchestratorInner>);

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
