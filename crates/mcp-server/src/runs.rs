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

use crate::call::{RunCall, RunHandle};
use crate::ended::WorkEnd;

/// Number of ended runs that are kept for further calls; older ones are answered from their record, if they have one.
const MAX_ENDED: usize = 1_000;

/// The runs of this process, which continue when no client waits for them.
pub(crate) struct LocalRuns {
    orchestrator: LocalOrchestrator,
    known: Arc<Mutex<TrackedRuns>>,
    tasks: Mutex<JoinSet<()>>,
}

#[derive(Default)]
struct TrackedRuns {
    runs: BTreeMap<RunId, RunHandle>,
    /// Ended runs, in the order of their ends.
    ended: VecDeque<RunId>,
}

impl LocalRuns {
    pub(crate) fn new(orchestrator: LocalOrchestrator) -> Self {
        Self { orchestrator, known: Arc::default(), tasks: Mutex::default() }
    }

    /// Starts a run for a call.
    pub(crate) fn start(&self, operator: &Arc<str>, input: Value, run: &RunId) -> RunCall {
        let work = WorkRequest { goes_on: false, input: Some(input) };
        RunCall::first(self.spawn(&mut lock(&self.known), operator, run, work))
    }

    /// Finds a run that was started before: a run of this process, or one that is resumed from its record. `None` for a
    /// run of another operator, and for an unknown run without a record.
    pub(crate) async fn find(&self, operator: &Arc<str>, run: &RunId) -> Option<RunCall> {
        self.find_or_start(operator, run, None).await
    }

    /// As [`LocalRuns::find`], but starts the run with this input if it has no record.
    pub(crate) async fn find_or_start(
        &self,
        operator: &Arc<str>,
        run: &RunId,
        input: Option<Value>,
    ) -> Option<RunCall> {
        let flight = lock(&self.known).runs.get(run).cloned();
        if let Some(flight) = &flight {
            if !flight.has_operator(operator) {
                return None;
            }
            let is_current = match flight.current_end() {
                Some(ended) => ended.is_current(&self.orchestrator, run).await,
                None => true,
            };
            if is_current {
                return Some(RunCall::further(flight.clone()));
            }
        }
        if !self.orchestrator.can_go_on(operator) {
            return None;
        }
        let mut known = lock(&self.known);
        match known.runs.get(run) {
            Some(now) if !now.has_operator(operator) => return None,
            // Another call resumed the run in the meantime.
            Some(now) if !flight.is_some_and(|flight| flight.is_same(now)) => {
                return Some(RunCall::further(now.clone()));
            }
            _ => {}
        }
        let work = WorkRequest { goes_on: true, input };
        Some(RunCall::further(self.spawn(&mut known, operator, run, work)))
    }

    fn spawn(
        &self,
        known: &mut TrackedRuns,
        operator: &Arc<str>,
        run: &RunId,
        work: WorkRequest,
    ) -> RunHandle {
        let (signals, (ends, end)) = (Signals::default(), watch::channel(None));
        let flight = RunHandle::new(Arc::clone(operator), signals.clone(), end);
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
struct WorkRequest {
    /// Whether to resume the run if it has a record.
    goes_on: bool,
    /// Input to start the run with if it has no record.
    input: Option<Value>,
}

impl WorkRequest {
    async fn perform(
        self,
        orchestrator: &LocalOrchestrator,
        operator: &str,
        run: &RunId,
        signals: &Signals,
    ) -> WorkEnd {
        let dispatch = |input: Value, goes_on: bool| {
            let mut context = Context::root();
            context.signals = signals.clone();
            (context.run, context.goes_on, context.is_recorded) =
                (Some(run.clone()), goes_on, goes_on);
            async move {
                let result = orchestrator.dispatch(operator, Task::json(input), context).await;
                WorkEnd::read(orchestrator, operator, run, result).await
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

impl TrackedRuns {
    /// Records the end of the work on a run, unless other work on the run began in the meantime.
    fn note_end(&mut self, run: RunId, ended: &RunHandle) {
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

fn lock(known: &Mutex<TrackedRuns>) -> MutexGuard<'_, TrackedRuns> {
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
        let flight = || RunHandle::new("clerk".into(), Signals::default(), watch::channel(None).1);
        let (mut known, earlier, now) = (TrackedRuns::default(), flight(), flight());
        known.runs.insert("run_1".into(), now.clone());
        known.note_end("run_1".into(), &earlier);
        assert!(known.ended.is_empty());
        known.note_end("run_1".into(), &now);
        assert_eq!(known.ended, [RunId::from("run_1")]);
    }
}
