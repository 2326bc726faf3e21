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
use crate::ended::Ended;

/// Number of ended runs that are kept for further calls; older ones are answered from their record, if they have one.
const MAX_ENDED: usize = 1_000;

/// The runs of this process, which continue when no client waits for them.
pub(crate) struct Runs {
    orchestrator: LocalOrchestrator,
    known: Arc<Mutex<Known>>,
    tasks: Mutex<JoinSet<()>>,
}

#[derive(Default)]
struct Known {
    runs: BTreeMap<RunId, Flight>,
    /// Ended runs, in the order of their ends.
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

    /// Finds a run that was started before: a run of this process, or one that is resumed from its record. `None` for a
    /// run of another operator, and for an unknown run without a record.
    pub(crate) async fn find(&self, operator: &Arc<str>, run: &RunId) -> Option<Call> {
        self.find_or_start(operator, run, None).await
    }

    /// As [`Runs::find`], but starts the run with this input if it has no record.
    pub(crate) async fn find_or_start(
        &self,
        operator: &Arc<str>,
        run: &RunId,
        input: Option<Value>,
    ) -> Option<Call> {
        let flight = lock(&self.known).runs.get(run).cloned();
        if let Some(flight) = &flight {
            if !flight.is_of(operator) {
                return None;
            }
            let is_current = match flight.current_end() {
                Some(ended) => ended.is_current(&self.orchestrator, run).await,
                None => true,
            };
            if is_current {
                return Some(Call::further(flight.clone()));
            }
        }
        if !self.orchestrator.can_go_on(operator) {
            return None;
        }
        let mut known = lock(&self.known);
        match known.runs.get(run) {
            Some(now) if !now.is_of(operator) => return None,
            // Another call resumed the run in the meantime.
            Some(now) if !flight.is_some_and(|flight| flight.is_same(now)) => {
                return Some(Call::further(now.clone()));
            }
            _ => {}
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
        let (known, run, ended_flight) = (Arc::clone(&self.known), run.clone(), flight.clone());
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let ended = work.perform(&orchestrator, &operator, &run, &signals).await;
            ends.send_replace(Some(Arc::new(ended)));
            lock(&known).note_end(run, &ended_flight);
        });
        flight
    }
}

/// Work on a run.
struct Work {
    /// Whether to resume the run if it has a record.
    goes_on: bool,
    /// Input to start the run with if it has no record.
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
                Ended::read(orchestrator, operator, run, result).await
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
    /// Records the end of the work on a run, unless other work on the run began in the meantime.
    fn note_end(&mut self, run: RunId, ended: &Flight) {
        if !self.runs.get(&run).is_some_and(|flight| flight.is_same(ended)) {
            return;
        }
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

#[cfg(test)]
mod tests {
    use layer0::operator::Signals;
    use tokio::sync::watch;

    use super::*;

    /// Spec: Q10
    #[test]
    fn resumed_run_is_not_listed_as_ended() {
        let flight = || Flight::new("clerk".into(), Signals::default(), watch::channel(None).1);
        let (mut known, earlier, now) = (Known::default(), flight(), flight());
        known.runs.insert("run_1".into(), now.clone());
        known.note_end("run_1".into(), &earlier);
        assert!(known.ended.is_empty());
        known.note_end("run_1".into(), &now);
        assert_eq!(known.ended, [RunId::from("run_1")]);
    }
}
