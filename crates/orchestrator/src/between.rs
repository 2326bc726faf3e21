//! Orchestrator of an operator without a record: gives its child runs shares of the budget that its caller gave it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures_util::future::join_all;
use layer0::error::{OperatorError, OrchError};
use layer0::failure::{Effect, Facts, Failure};
use layer0::id::{RunId, WorkflowId};
use layer0::operator::{Answer, Context, Signal, Task};
use layer0::orchestrator::UnknownOperator;
use layer0::stop::Stop;
use layer0::{JsonText, Operator, Orchestrator, code, push_hex};
use serde_json::Value;
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::books::callers::ChildCaller;
use crate::books::{Books, DispatchOpening};
use crate::many::one_of_many;

/// Number of parts that the rest of the budget is divided into if the number of child runs is unknown.
pub(crate) const UNKNOWN_SHARES: u32 = 2;
/// Number of bytes of a digest that make an id.
const ID_BYTES: usize = 16;

/// The orchestrator of one attempt of an operator.
pub(crate) struct Between {
    orchestrator: Arc<dyn Orchestrator>,
    books: Arc<Books>,
    run: RunId,
    /// Whether there was an earlier attempt, so that child runs may have a record.
    goes_on: bool,
    /// Number of dispatches with the same operator and input in this attempt, by run.
    dispatched: Mutex<BTreeMap<RunId, u32>>,
}

impl Between {
    pub(crate) fn new(
        orchestrator: Arc<dyn Orchestrator>,
        books: Arc<Books>,
        run: RunId,
        goes_on: bool,
    ) -> Self {
        Self { orchestrator, books, run, goes_on, dispatched: Mutex::default() }
    }

    /// Returns the run id of a dispatch. Another attempt of the operator derives the same id, so that a finished child
    /// run is answered from its record.
    fn next_run_id(&self, operator: &str, task: &Task) -> RunId {
        let input = JsonText::from(&task.input);
        let asked = derive_run_id([self.run.as_str(), operator, input.get()]);
        let mut dispatched = self.dispatched.lock().unwrap_or_else(PoisonError::into_inner);
        let count = dispatched.entry(asked.clone()).or_default();
        *count += 1;
        match *count {
            1 => asked,
            count => derive_run_id([asked.as_str(), &count.to_string()]),
        }
    }

    fn begin(
        &self,
        operator: &str,
        (is_priced, is_recorded): (bool, bool),
        task: &Task,
        mut context: Context,
        parts: u32,
    ) -> Result<StartedDispatch, OrchError> {
        if !is_priced && self.books.bounds_cost() {
            return Err(CallerBudgetExhausted::new_error(operator, code::ORCH_PRICE_UNKNOWN));
        }
        if context.run.is_none() {
            context.run = Some(self.next_run_id(operator, task));
            context.goes_on |= self.goes_on;
        }
        let run = context.run.clone().unwrap_or_else(|| RunId::from(""));
        let signals = context.signals.clone();
        let opening =
            DispatchOpening { run: run.clone(), signals, at_most: task.allowance, is_recorded };
        let given = self.books.begin(opening, parts);
        let given = given.map_err(|code| CallerBudgetExhausted::new_error(operator, code))?;
        context.allowance = given;
        let books = Arc::clone(&self.books);
        context.caller = Some(Arc::new(ChildCaller { books, run: run.clone() }));
        Ok(StartedDispatch { context, end: NoteEnd { books: Arc::clone(&self.books), run } })
    }

    async fn go(
        &self,
        operator: OperatorChoice<'_>,
        task: Task,
        begun: Result<StartedDispatch, OrchError>,
    ) -> Result<Answer, OrchError> {
        let StartedDispatch { context, end } = begun?;
        let result = match operator {
            OperatorChoice::Named(name) => self.orchestrator.dispatch(name, task, context).await,
            OperatorChoice::Own(operator) => {
                self.orchestrator.perform(operator, task, context).await
            }
        };
        let waits = result.as_ref().is_ok_and(|answer| answer.stop == Stop::WaitingApproval);
        let is_left = waits && self.books.leaves();
        end.with(result.as_ref().ok(), is_left);
        match is_left {
            // The operator is suspended with it.
            true => std::future::pending().await,
            false => result,
        }
    }
}

enum OperatorChoice<'a> {
    Named(&'a str),
    Own(Arc<dyn Operator>),
}

struct StartedDispatch {
    context: Context,
    end: NoteEnd,
}

/// Guard of a dispatch: when dropped, records that nothing waits for it any more.
struct NoteEnd {
    books: Arc<Books>,
    run: RunId,
}

impl NoteEnd {
    fn with(self, answer: Option<&Answer>, is_left: bool) {
        self.books.end(&self.run, answer, is_left);
    }
}

impl Drop for NoteEnd {
    fn drop(&mut self) {
        self.books.end(&self.run, None, false);
    }
}

#[async_trait]
impl Orchestrator for Between {
    async fn dispatch(
        &self,
        operator: &str,
        task: Task,
        context: Context,
    ) -> Result<Answer, OrchError> {
        if is_of_another(&context) {
            return self.orchestrator.dispatch(operator, task, context).await;
        }
        self.books.hold_while_leaving().await;
        let shares = context.shares.unwrap_or(UNKNOWN_SHARES);
        let facts = (self.is_priced(operator), self.can_go_on(operator));
        let begun = self.begin(operator, facts, &task, context, shares);
        self.go(OperatorChoice::Named(operator), task, begun).await
    }

    async fn dispatch_many(
        &self,
        tasks: Vec<(String, Task)>,
        context: Context,
    ) -> Vec<Result<Answer, OrchError>> {
        if is_of_another(&context) {
            return self.orchestrator.dispatch_many(tasks, context).await;
        }
        self.books.hold_while_leaving().await;
        let mut parts = u32::try_from(tasks.len()).unwrap_or(u32::MAX);
        // All shares are reserved before the first dispatch begins.
        let tasks: Vec<_> = tasks
            .into_iter()
            .map(|(operator, task)| {
                let facts = (self.is_priced(&operator), self.can_go_on(&operator));
                let context = one_of_many(&context);
                let begun = self.begin(&operator, facts, &task, context, parts);
                parts = parts.saturating_sub(1);
                (operator, task, begun)
            })
            .collect();
        let dispatches = tasks.into_iter().map(|(operator, task, begun)| async move {
            self.go(OperatorChoice::Named(&operator), task, begun).await
        });
        join_all(dispatches).await
    }

    async fn perform(
        &self,
        operator: Arc<dyn Operator>,
        task: Task,
        context: Context,
    ) -> Result<Answer, OrchError> {
        if is_of_another(&context) {
            return self.orchestrator.perform(operator, task, context).await;
        }
        self.books.hold_while_leaving().await;
        let shares = context.shares.unwrap_or(UNKNOWN_SHARES);
        let facts = (operator.is_priced(), operator.can_go_on());
        let begun = self.begin(operator.name(), facts, &task, context, shares);
        self.go(OperatorChoice::Own(operator), task, begun).await
    }

    fn unknown(&self, operator: &str) -> Option<UnknownOperator> {
        self.orchestrator.unknown(operator)
    }

    fn is_priced(&self, operator: &str) -> bool {
        self.orchestrator.is_priced(operator)
    }

    fn can_go_on(&self, operator: &str) -> bool {
        self.orchestrator.can_go_on(operator)
    }

    async fn signal(&self, workflow: &WorkflowId, signal: Signal) -> Result<(), OrchError> {
        self.orchestrator.signal(workflow, signal).await
    }

    async fn query(&self, workflow: &WorkflowId) -> Result<Value, OrchError> {
        self.orchestrator.query(workflow).await
    }
}

/// Returns whether another run dispatches: a child run that uses the operator's orchestrator. Its own caller then keeps
/// its books.
fn is_of_another(context: &Context) -> bool {
    context.caller.is_some()
}

/// Error of an operator that does not start because a budget of its caller is used up.
///
/// Retry: never. Effect: none.
#[derive(Debug, Error)]
#[error("`{operator}` was not started: its caller has nothing to give it")]
pub(crate) struct CallerBudgetExhausted {
    operator: String,
    code: &'static str,
}

impl CallerBudgetExhausted {
    pub(crate) fn new_error(operator: &str, code: &'static str) -> OrchError {
        OperatorError::from_failure(Self { operator: operator.to_owned(), code }).into()
    }
}

impl Failure for CallerBudgetExhausted {
    fn facts(&self) -> Facts {
        Facts::never(self.code, Effect::None)
    }
}

/// Derives a run id from texts.
fn derive_run_id<'a>(texts: impl IntoIterator<Item = &'a str>) -> RunId {
    let mut digest = Sha256::new();
    for text in texts {
        digest.update(text.len().to_be_bytes());
        digest.update(text);
    }
    let mut id = "run_".to_owned();
    push_hex(&mut id, &digest.finalize()[..ID_BYTES]);
    RunId::new(id)
}
