//! The runs that clients have started.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use backstop_orchestrator::LocalOrchestrator;
use layer0::Orchestrator;
use layer0::id::RunId;
use layer0::operator::{Context, Task};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::call::{Call, Flight};
use crate::ended::{Ended, Standing};

/// How many runs that have ended are kept to be asked for; older ones are answered from their record, where
/// there is one.
const MAX_ENDED: usize = 1_000;

/// The runs of this process, which go on when no client waits for them.
pub(crate) struct Runs {
    orchestrator: LocalOrchestrator,
    known: Arc<Mutex<Known>>,
    tasks: Mutex<JoinSet<()>>,
}

#[derive(Default)]
struct Known {
    runs: BTreeMap<RunId, Flight>,
    /// Those that have ended, in this order.
    ended: VecDeque<RunId>,
}

impl Runs {
    pub(crate) fn new(orchestrator: LocalOrchestrator) -> Self {
        Self { orchestrator, known: Arc::default(), tasks: Mutex::default() }
    }

    /// Starts a run for a call.
    pub(crate) fn start(&self, operator: &Arc<str>, input: Value, run: &RunId) -> Call {
        let task = Task::json(input);
        Call::first(self.spawn(&mut lock(&self.known), operator, run, task, false))
    }

    /// Finds a run that was started before, for a call: one of this process, or one that is gone on with from its
    /// record. `None` for one of another operator, and for one that is not known and has no record.
    pub(crate) fn find(&self, operator: &Arc<str>, run: &RunId) -> Option<Call> {
        let mut known = lock(&self.known);
        match known.runs.get(run) {
            Some(flight) if !flight.is_of(operator) => return None,
            Some(flight) if !flight.has_left() => return Some(Call::further(flight.clone())),
            // Its record may say more by now.
            Some(_) => {}
            None if !self.orchestrator.can_go_on(operator) => return None,
            None => {}
        }
        let task = Task::json(Value::Null);
        Some(Call::further(self.spawn(&mut known, operator, run, task, true)))
    }

    fn spawn(
        &self,
        known: &mut Known,
        operator: &Arc<str>,
        run: &RunId,
        task: Task,
        goes_on: bool,
    ) -> Flight {
        let mut context = Context::root();
        (context.run, context.goes_on, context.is_recorded) = (Some(run.clone()), goes_on, goes_on);
        let (ends, end) = watch::channel(None);
        let flight = Flight::new(Arc::clone(operator), context.signals.clone(), end);
        known.ended.retain(|other| other != run);
        known.runs.insert(run.clone(), flight.clone());
        let (orchestrator, operator) = (self.orchestrator.clone(), Arc::clone(operator));
        let (known, run) = (Arc::clone(&self.known), run.clone());
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let result = orchestrator.dispatch(&operator, task, context).await;
            let standing = Standing::of(&orchestrator, &operator, &run, &result).await;
            ends.send_replace(Some(Arc::new(Ended::new(result, standing))));
            lock(&known).has_ended(run);
        });
        flight
    }
}

impl Known {
    fn has_ended(&mut self, run: RunId) {
        self.ended.retain(|other| *other != run);
        self.ended.push_back(run);
        if self.ended.len() > MAX_ENDED
            && let Some(oldest) = self.ended.pop_front()
        {
            self.runs.remove(&oldest);
        }
    }
}

fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}
