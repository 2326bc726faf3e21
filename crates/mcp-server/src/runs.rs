//! The runs that clients have started.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use backstop_orchestrator::LocalOrchestrator;
use layer0::Orchestrator;
use layer0::error::OrchError;
use layer0::id::RunId;
use layer0::operator::{Answer, Context, Signal, Signals, Task};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How many runs that have ended are kept to be asked for; older ones are answered from their record, where
/// there is one.
const MAX_ENDED: usize = 1_000;

type Ended = Arc<Result<Answer, OrchError>>;

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

/// A run, as long as it is known.
#[derive(Clone)]
pub(crate) struct Flight {
    operator: Arc<str>,
    signals: Signals,
    end: watch::Receiver<Option<Ended>>,
    /// Is it of the call that began the run?
    began: bool,
}

impl Runs {
    pub(crate) fn new(orchestrator: LocalOrchestrator) -> Self {
        Self { orchestrator, known: Arc::default(), tasks: Mutex::default() }
    }

    /// Starts a run.
    pub(crate) fn start(&self, operator: &Arc<str>, task: Task, run: &RunId) -> Flight {
        self.spawn(operator, run, task, false)
    }

    /// Returns a run that was started before: one of this process, or one that is gone on with from its record.
    /// `None` for one of another operator.
    pub(crate) fn find(&self, operator: &Arc<str>, run: &RunId) -> Option<Flight> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let flight = known.runs.get(run).cloned();
        drop(known);
        let found = match flight {
            Some(flight) if flight.operator != *operator => None,
            // What waited when it was last heard of may have been decided since.
            Some(flight) if !flight.has_left() => Some(flight),
            _ => Some(self.spawn(operator, run, Task::json(serde_json::Value::Null), true)),
        };
        // Who only asks for a run does not end it for those who began it.
        found.map(|flight| Flight { began: false, ..flight })
    }

    fn spawn(&self, operator: &Arc<str>, run: &RunId, task: Task, goes_on: bool) -> Flight {
        let mut context = Context::root();
        (context.run, context.goes_on, context.is_recorded) = (Some(run.clone()), goes_on, goes_on);
        let signals = context.signals.clone();
        let (ends, end) = watch::channel(None);
        let flight = Flight { operator: Arc::clone(operator), signals, end, began: true };
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .runs
            .insert(run.clone(), flight.clone());
        let (orchestrator, operator) = (self.orchestrator.clone(), Arc::clone(operator));
        let (known, run) = (Arc::clone(&self.known), run.clone());
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let ended = orchestrator.dispatch(&operator, task, context).await;
            ends.send_replace(Some(Arc::new(ended)));
            known.lock().unwrap_or_else(PoisonError::into_inner).has_ended(run);
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

impl Flight {
    /// Waits for the end of the run's work here: it is done, has failed, or waits for a person.
    pub(crate) async fn end(&mut self) -> Ended {
        match self.end.wait_for(Option::is_some).await.ok().and_then(|end| end.clone()) {
            Some(ended) => ended,
            // Its task was dropped with the server.
            None => Arc::new(Err(OrchError::Shutdown("the server has ended".into()))),
        }
    }

    /// Did the call that has it begin the run?
    pub(crate) const fn has_begun(&self) -> bool {
        self.began
    }

    /// Stops the run.
    pub(crate) fn cancel(&self) {
        self.signals.push(Signal::cancel());
    }

    /// Did the run leave without an end, or fail in a way that may be another one now?
    fn has_left(&self) -> bool {
        match self.end.borrow().as_deref() {
            Some(Ok(answer)) => answer.stop == layer0::stop::Stop::WaitingApproval,
            // Another process had it, or the store was in the way: its record may say something else now.
            Some(Err(error)) => error.is_retryable(),
            None => false,
        }
    }
}
