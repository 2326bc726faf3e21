//! The rounds of a worker: finding runs, starting them, and handling their results.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::LogError;
use backstop_store_postgres::{Look, QueueWatch, Ready};
use layer0::failure::Failure;
use layer0::id::RunId;
use layer0::{code, text};
use tokio::task::{self, JoinError, JoinSet};

use crate::health::Health;
use crate::parts::WorkerParts;
use crate::pause::Pauses;
use crate::report::{RunChange, WorkerEnd};
use crate::run_work::RunWork;

/// Interval between looks for runs, with or without a notification.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Interval between looks for parked runs, which may be many.
const LOOK_AT_PARKED_EVERY: Duration = Duration::from_secs(5);
/// First wait after the database could not be read; doubled each time.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Interval at which this process announces the agents that it resumes.
const ANNOUNCE_EVERY: Duration = Duration::from_secs(5);
/// Interval at which old rows are removed.
const CLEAN_EVERY: Duration = Duration::from_secs(10 * 60);
/// Time for which released runs may end.
const LETTING_GO: Duration = Duration::from_secs(5);

/// Result of a run, or the error of the database.
type Done = Result<RunChange, LogError>;

/// A running worker.
pub(crate) struct Rounds<'a> {
    worker: &'a WorkerParts,
    health: &'a Health<'a>,
    watch: QueueWatch,
    at_work: JoinSet<Done>,
    /// The run of each task, because a task that panicked does not return it.
    runs: HashMap<task::Id, RunId>,
    /// Runs found by the last look that can be resumed and are not running here.
    found: VecDeque<Ready>,
    /// Offset at which this worker starts in the list of found runs, because others look at the same runs.
    begins_at: u64,
    /// Whether new runs were started first in the last round with room.
    begins_first: bool,
    pauses: Pauses,
    /// Runs that have ended here but could not be given back to the queue yet.
    untold: Vec<RunId>,
    /// Time of the last occurrence of each, on the monotonic clock; `None` before the first one.
    looked_at: Option<Duration>,
    parked_looked_at: Option<Duration>,
    announced_at: Duration,
    cleaned_at: Duration,
}

impl<'a> Rounds<'a> {
    pub(crate) fn new(worker: &'a WorkerParts, health: &'a Health<'a>) -> Self {
        let now = SystemClock.monotonic();
        Self {
            watch: worker.queue.watch(),
            worker,
            health,
            at_work: JoinSet::new(),
            runs: HashMap::new(),
            found: VecDeque::new(),
            begins_at: RandomState::new().hash_one(()),
            begins_first: true,
            pauses: Pauses::default(),
            untold: Vec::new(),
            looked_at: None,
            parked_looked_at: None,
            announced_at: now,
            cleaned_at: now,
        }
    }

    /// Runs rounds until it is dropped, which leaves the running runs as they are.
    pub(crate) async fn work(&mut self) {
        let mut wait = FIRST_WAIT;
        loop {
            match self.round().await {
                Ok(()) => {
                    self.health.was_read(SystemClock.monotonic());
                    wait = FIRST_WAIT;
                }
                Err(error) => {
                    self.health.was_not_read(&error, SystemClock.monotonic());
                    tracing::warn!(code = error.code(), %error, "the database cannot be read just now");
                    SystemClock.sleep(wait).await;
                    wait = LONGEST_WAIT.min(wait * 2);
                    continue;
                }
            }
            tokio::select! {
                () = self.watch.wait_for_change(LOOK_EVERY), if self.has_room() => {}
                Some(done) = self.at_work.join_next_with_id() => self.took_in(done),
                () = SystemClock.sleep(LOOK_EVERY) => {}
            }
            while let Some(done) = self.at_work.try_join_next_with_id() {
                self.took_in(done);
            }
        }
    }

    /// Starts as many runs as there is room for, resumed ones and new ones from the queue.
    ///
    /// The two kinds take turns at the first free place, so that a steady stream of one of them never takes all places
    /// for ever. A round without room is nobody's turn: with runs of a certain length every second round has none.
    async fn round(&mut self) -> Result<(), LogError> {
        self.keep_up().await?;
        if !self.has_room() {
            return Ok(());
        }
        let now = SystemClock.monotonic();
        if is_due(self.looked_at, now, LOOK_EVERY) {
            self.looked_at = Some(now);
            self.look(now).await?;
        }
        self.begins_first = !self.begins_first;
        if self.begins_first {
            self.begin().await?;
        }
        self.go_on(now).await?;
        if !self.begins_first && self.has_room() {
            self.begin().await?;
        }
        Ok(())
    }

    fn has_room(&self) -> bool {
        self.room() > 0
    }

    fn room(&self) -> usize {
        self.worker.concurrency.saturating_sub(self.at_work.len())
    }

    async fn keep_up(&mut self) -> Result<(), LogError> {
        while let Some(run) = self.untold.last() {
            self.worker.queue.give_back(run).await?;
            self.untold.pop();
        }
        let now = SystemClock.monotonic();
        if now.saturating_sub(self.announced_at) >= ANNOUNCE_EVERY {
            self.worker.queue.announce(&self.worker.row).await?;
            self.announced_at = now;
        }
        if now.saturating_sub(self.cleaned_at) >= CLEAN_EVERY {
            self.worker.queue.clean().await?;
            self.pauses.clean(now);
            self.cleaned_at = now;
        }
        Ok(())
    }

    async fn look(&mut self, now: Duration) -> Result<(), LogError> {
        // The result includes runs that are running here.
        let most = self.room() + self.runs.len() + 64;
        let with_parked = is_due(self.parked_looked_at, now, LOOK_AT_PARKED_EVERY);
        if with_parked {
            self.parked_looked_at = Some(now);
        }
        let paused = self.pauses.list_paused(now);
        let look = Look::new(most).with_paused(&paused).with_parked(with_parked);
        let ready = self.worker.queue.ready(&self.worker.row, look).await?;
        let at_work: HashSet<&RunId> = self.runs.values().collect();
        self.found = ready.into_iter().filter(|it| !at_work.contains(&it.run)).collect();
        if let Some(place) = self.begins_at.checked_rem(self.found.len() as u64) {
            self.found.rotate_left(usize::try_from(place).unwrap_or_default());
        }
        Ok(())
    }

    async fn go_on(&mut self, now: Duration) -> Result<(), LogError> {
        let worker = self.worker;
        while self.has_room()
            && let Some(ready) = self.found.pop_front()
        {
            if self.pauses.holds(&ready.run, now) {
                continue;
            }
            match worker.queue.take_again(&ready.run, &worker.queues).await? {
                true => self.start(RunWork::ready(ready, worker.row.adopts)),
                // Another worker was faster, or its queue is full.
                false => self.pauses.hold(&ready.run, now),
            }
        }
        Ok(())
    }

    async fn begin(&mut self) -> Result<(), LogError> {
        let worker = self.worker;
        let agents: Vec<&str> = worker.row.agents.iter().map(|(name, _)| name.as_str()).collect();
        let paused = self.pauses.list_paused(SystemClock.monotonic());
        let taken = worker.queue.take(&worker.queues, &agents, self.room(), &paused).await?;
        for taken in taken {
            self.start(RunWork::from_queue(taken, worker.row.adopts));
        }
        Ok(())
    }

    fn start(&mut self, work: RunWork) {
        let WorkerParts { orchestrator, log, queue, reports, .. } = self.worker;
        let run = work.run.clone();
        let begun = RunChange::Begun {
            run: run.clone(),
            agent: work.agent.clone(),
            goes_on: work.is_recorded(),
        };
        // There may be no listener.
        let _ = reports.send(begun.into());
        let (orchestrator, log, queue) = (orchestrator.clone(), Arc::clone(log), queue.clone());
        let task =
            self.at_work.spawn(async move { work.perform(orchestrator, &*log, &queue).await });
        self.runs.insert(task.id(), run);
    }

    fn took_in(&mut self, ended: Result<(task::Id, Done), JoinError>) {
        let (id, done) = match ended {
            Ok((id, done)) => (id, Ok(done)),
            Err(error) => (error.id(), Err(error)),
        };
        let Some(run) = self.runs.remove(&id) else { return };
        match done {
            Ok(Ok(report)) => {
                match &report {
                    RunChange::PutOff { code, message, .. } => {
                        tracing::warn!(%run, code, message, "the run could not be gone on with");
                        self.pauses.put_off(&run, SystemClock.monotonic());
                    }
                    _ => self.pauses.forget(&run),
                }
                let _ = self.worker.reports.send(report.into());
            }
            Ok(Err(error)) => {
                tracing::warn!(%run, code = error.code(), %error, "what became of the run is not known yet");
                self.return_later(run);
            }
            Err(error) => {
                let message = match error.try_into_panic() {
                    Ok(panic) => text::panic_message(panic),
                    Err(error) => error.to_string(),
                };
                tracing::error!(%run, message, "a task of the worker has ended early");
                let code = code::ORCH_PANICKED.to_owned();
                let report = RunChange::PutOff { run: run.clone(), code, message };
                let _ = self.worker.reports.send(report.into());
                self.return_later(run);
            }
        }
    }

    /// Pauses a run that its task did not give back.
    fn return_later(&mut self, run: RunId) {
        self.pauses.put_off(&run, SystemClock.monotonic());
        self.untold.push(run);
    }

    /// Releases all running runs.
    pub(crate) async fn leave(mut self) -> WorkerEnd {
        while let Some(done) = self.at_work.try_join_next_with_id() {
            self.took_in(done);
        }
        let at_rest = self.worker.database.leave(self.worker.drain).await;
        // The lease of the runs has ended, and they end with it.
        let ends = async {
            while let Some(done) = self.at_work.join_next_with_id().await {
                self.took_in(done);
            }
        };
        tokio::select! {
            () = ends => {}
            () = SystemClock.sleep(LETTING_GO) => {}
        }
        WorkerEnd::new(self.at_work.len(), at_rest)
    }
}

/// Returns whether `every` has passed since `last`, or there was no last time.
fn is_due(last: Option<Duration>, now: Duration, every: Duration) -> bool {
    last.is_none_or(|last| now.saturating_sub(last) >= every)
}
