//! The runs that clients have started.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use backstop_orchestrator::LocalOrchestrator;
use layer0::Orchestrator;
use layer0::id::RunId;
use layer0::operator::{Context, Signals, Task};
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
        let work = Work { goes_on: false, input: Some(input) };
        Call::first(self.spawn(&mut lock(&self.known), operator, run, work))
    }

    /// Finds a run that was started before, for a call: one of this process, or one that is gone on with from its
    /// record. `None` for one of another operator, and for one that is not known and keeps no record.
    pub(crate) fn find(&self, operator: &Arc<str>, run: &RunId) -> Option<Call> {
        self.find_or_start(operator, run, None)
    }

    /// As [`Runs::find`]; a run that should have been started with this input, and has no record, is started.
    pub(crate) fn find_or_start(
        &self,
        operator: &Arc<str>,
        run: &RunId,
        input: Option<Value>,
    ) -> Option<Call> {
        let mut known = lock(&self.known);
        match known.runs.get(run) {
            Some(flight) if !flight.is_of(operator) => return None,
            Some(flight) if !flight.has_left() => return Some(Call::further(flight.clone())),
            // Its record may say more by now.
            Some(_) => {}
            None if !self.orchestrator.can_go_on(operator) => return None,
            None => {}
        }
        let work = Work { goes_on: true, input };
        Some(Call::further(self.spawn(&mut known, operator, run, work)))
    }

    fn spawn(&self, known: &mut Known, operator: &Arc<str>, run: &RunId, work: Work) -> Flight {
        let (signals, (ends, end)) = (Signals::default(), watch::channel(None));
        let flight = Flight::new(Arc::clone(operator), signals.clone(), end);
        known.ended.retain(|other| other != run);
        known.runs.insert(run.clone(), flight.clone());
        let (orchestrator, operator) = (self.orchestrator.clone(), Arc::clone(operator));
        let (known, run) = (Arc::clone(&self.known), run.clone());
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let ended = work.perform(&orchestrator, &operator, &run, &signals).await;
            ends.send_replace(Some(Arc::new(ended)));
            lock(&known).has_ended(run);
        });
        flight
    }
}

/// What is to be done of a run.
struct Work {
    /// Is it gone on with, where it has a record?
    goes_on: bool,
    /// What it is started with, where it has none.
    input: Option<Value>,
}

impl Work {
    async fn perform(
        self,
        orchestrator: &LocalOrchestrator,
        operator: &str,
        run: &RunId,
        signals: &Signals,
    ) -> Ended {
        let dispatch = |input: Value, goes_on: bool| {
            let mut context = Context::root();
            context.signals = signals.clone();
            (context.run, context.goes_on, context.is_recorded) =
                (Some(run.clone()), goes_on, goes_on);
            async move {
                let result = orchestrator.dispatch(operator, Task::json(input), context).await;
                let standing = Standing::of(orchestrator, operator, run, &result).await;
                Ended::new(result, standing)
            }
        };
        if self.goes_on {
            let ended = dispatch(Value::Null, true).await;
            if !ended.is_unknown() || self.input.is_none() {
                return ended;
            }
        }
        dispatch(self.input.unwrap_or_default(), false).await
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
