//! Guarantees of removals while another process acts between two of their steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use backstop_error_store::{ErrorFilter, ErrorStore, Lookup, NewError, Origin, StoreError};
use backstop_event_log::{
    EventLog, LogError, RunFilter, RunState, RunWriter, Seed, Subscription, read_events,
};
use backstop_redact::Redactor;
use backstop_retention::{
    Forgotten, OldRun, Removal, RemoveError, Removed, RunRow, RunShelf, delete_run, forget_session,
    prune_runs,
};
use futures_util::future::BoxFuture;
use layer0::event::{
    Actor, AgentRecord, EventKind, Follows, Hash, RunFailed, RunForked, RunReopened, RunStarted,
};
use layer0::id::{ErrorId, RunId, SessionId};
use layer0::{Code, Timestamp, code};
use serde_json::json;

/// A store from which runs are removed, and the handles of another process that acts on it.
#[expect(
    clippy::exhaustive_structs,
    missing_debug_implementations,
    reason = "a test fills every field, and prints none"
)]
pub struct RemovalStore<S> {
    /// The removals to check.
    pub shelf: S,
    /// The log of another process.
    pub log: Arc<dyn EventLog>,
    /// The errors of another process.
    pub errors: Arc<dyn ErrorStore>,
}

/// Lets another actor act before each step of each removal. A successful removal has removed all that its answer names,
/// the actor keeps what it depends on, and a refused removal has removed nothing.
///
/// # Panics
///
/// If a guarantee does not hold.
pub async fn removals<S: RunShelf>(store: RemovalStore<S>) {
    let mut number = 0;
    for kind in [Kind::Delete, Kind::Forget, Kind::Prune] {
        for actor in [Intruder::Begin, Intruder::Fork, Intruder::Reopen, Intruder::Store] {
            for step in 0.. {
                number += 1;
                if !check(&store, &Names::new(number), kind, actor, step).await {
                    assert!(step > 1, "{kind:?} has no steps");
                    break;
                }
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Delete,
    Forget,
    Prune,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Intruder {
    Begin,
    Fork,
    Reopen,
    Store,
}

/// The names of one case: a session with a run, its child run, a fork, and a following run.
#[derive(Debug, Clone)]
struct Names {
    session: String,
    run: String,
    below: String,
    copy: String,
    next: String,
}

impl Names {
    fn new(number: usize) -> Self {
        let name = |what: &str| format!("{what}_{number}");
        let [session, run, below] = ["session", "run", "run_below"].map(name);
        let [copy, next] = ["run_copy", "run_next"].map(name);
        Self { session, run, below, copy, next }
    }
}

/// Removes runs while an actor acts before a step, and returns whether there is such a step.
async fn check<S: RunShelf>(
    store: &RemovalStore<S>,
    names: &Names,
    kind: Kind,
    intruder: Intruder,
    step: usize,
) -> bool {
    let case = format!("{kind:?}, {intruder:?} before step {step}");
    let text = fill(store, names).await;
    let acted = Arc::new(tokio::sync::Mutex::new(None));
    let hook: Hook<'_> = {
        let (log, errors) = (Arc::clone(&store.log), Arc::clone(&store.errors));
        let (acted, names) = (Arc::clone(&acted), names.clone());
        Box::new(move || {
            let (log, errors) = (Arc::clone(&log), Arc::clone(&errors));
            let (acted, names) = (Arc::clone(&acted), names.clone());
            Box::pin(async move {
                *acted.lock().await = Some(act(log, errors, &names, intruder).await);
            })
        })
    };
    let shelf = Interrupted { shelf: &store.shelf, hook, step, steps: AtomicUsize::new(0) };
    let removed = remove(&shelf, names, kind).await;
    let Some(acted) = acted.lock().await.take() else { return false };
    let left = Left::read(store, names, &text).await;
    left.check_removal(names, &removed, &case);
    left.check_actor(names, intruder, &acted, &removed, &case);
    true
}

/// Makes a session with a failed run, its child run, and a text that both refer to.
async fn fill<S>(store: &RemovalStore<S>, names: &Names) -> ErrorId {
    let mut writer = RunWriter::new(Arc::clone(&store.log), names.run.as_str().into());
    append(&mut writer, started(names, None, None)).await.expect("a run begins");
    let mut below = RunWriter::new(Arc::clone(&store.log), names.below.as_str().into());
    append(&mut below, started(names, Some(&names.run), None)).await.expect("a run begins");
    append(&mut below, failed()).await.expect("a run ends");
    append(&mut writer, failed()).await.expect("a run ends");
    let stored = store.errors.store(error(names, &names.run)).await.expect("an error is stored");
    stored.id
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(1_767_225_600_000).after(Duration::from_secs(seconds))
}

fn error(names: &Names, run: &str) -> NewError {
    let origin = Origin::new(at(1), names.session.as_str(), run, "c", "sql");
    NewError::new(origin, Code::new(code::TOOL_EXECUTION_FAILED), None, "boom", &Redactor::new())
}

fn started(names: &Names, parent: Option<&str>, follows: Option<&str>) -> EventKind {
    let mut first = RunStarted::new(
        "hello",
        names.session.as_str().into(),
        AgentRecord::new("demo", "d", json!({})),
    );
    first.parent = parent.map(Into::into);
    first.follows = follows.map(|run| Box::new(Follows::new(run, 2, Hash::default(), 1)));
    first.into()
}

fn failed() -> EventKind {
    RunFailed::new(code::PROVIDER_TIMEOUT, vec!["it failed".into()], Default::default()).into()
}

async fn append(writer: &mut RunWriter, kind: EventKind) -> Result<(), LogError> {
    writer.stage(&Seed::new("test"), at(1), Actor::Runtime, None, kind);
    writer.commit().await.map(|_| ())
}

async fn act(
    log: Arc<dyn EventLog>,
    errors: Arc<dyn ErrorStore>,
    names: &Names,
    intruder: Intruder,
) -> Result<(), LogError> {
    let (run, copied) = (names.run.as_str(), names.copy.as_str());
    match intruder {
        Intruder::Begin => {
            let mut next = RunWriter::new(log, names.next.as_str().into());
            append(&mut next, started(names, None, Some(&names.run))).await
        }
        Intruder::Fork => {
            let (_, events) = read_events(&*log, &run.into()).await?;
            let mut records = log.records(&run.into(), 1).await?;
            records.truncate(1);
            let mut copy = RunWriter::copy(log, copied.into(), &events[..1], records);
            append(
                &mut copy,
                RunForked::new(copied, format!("ses_{copied}").as_str(), run, 1).into(),
            )
            .await
        }
        Intruder::Reopen => {
            let claim = log.claim(&run.into()).await?;
            let summary = log.summary(&run.into()).await?;
            let summary = summary.ok_or_else(|| LogError::NotFound(run.into()))?;
            let mut writer = RunWriter::resume(log, summary, claim);
            let why = Some(Code::new(code::PROVIDER_TIMEOUT));
            append(&mut writer, RunReopened::new("ops", why).into()).await
        }
        Intruder::Store => {
            // A run of another session stores nothing that is removed.
            let stored = errors.store(error(names, "run_elsewhere")).await;
            stored.map(drop).map_err(|error| LogError::Failed(error.into()))
        }
    }
}

/// The result of a removal: the removed runs, and the forks that it named.
type Answer = Result<(Vec<RunId>, Option<Vec<RunId>>), RemoveError>;

async fn remove<S: RunShelf>(shelf: &Interrupted<'_, S>, names: &Names, kind: Kind) -> Answer {
    let run = names.run.as_str();
    let named = |forgotten: Forgotten| {
        let forks = forgotten.forks.into_iter().map(|fork| fork.run).collect();
        (forgotten.removed.runs, Some(forks))
    };
    match kind {
        Kind::Delete => delete_run(shelf, &run.into()).await.map(|removed| (removed.runs, None)),
        Kind::Forget => forget_session(shelf, &names.session.as_str().into(), "ada", false, at(9))
            .await
            .map(named),
        Kind::Prune => {
            let removed = prune_runs(shelf, Duration::from_secs(1), &[], at(9)).await;
            removed.map(|removed| (removed.runs, None)).map_err(Into::into)
        }
    }
}

/// The rows that remain after a removal.
#[derive(Debug)]
struct Left {
    runs: Vec<(RunId, RunState)>,
    has_text: bool,
}

impl Left {
    async fn read<S>(store: &RemovalStore<S>, names: &Names, text: &ErrorId) -> Self {
        let runs = store.log.runs(RunFilter::new()).await.expect("runs are listed");
        let found = store.errors.find(text).await.expect("an error is looked up");
        let any = store
            .errors
            .list(ErrorFilter::new().session(names.session.as_str()))
            .await
            .expect("errors are listed");
        let runs = runs.iter().map(|run| (run.run.clone(), run.state)).collect();
        // A text that is stored after the removal has an id of its own.
        Self { runs, has_text: matches!(found, Lookup::Found(_)) || !any.is_empty() }
    }

    fn has(&self, run: &str) -> bool {
        self.runs.iter().any(|(left, _)| left.as_str() == run)
    }

    /// Checks that a successful removal is complete, and that a refused one has removed nothing.
    fn check_removal(&self, names: &Names, answer: &Answer, case: &str) {
        match answer {
            Ok((removed, forks)) => {
                for run in removed {
                    assert!(!self.has(run.as_str()), "{case}: {run} is left: {self:?}");
                }
                assert_eq!(
                    self.has(&names.run),
                    self.has(&names.below),
                    "{case}: half a tree is left: {self:?}"
                );
                if forks.is_some() {
                    assert!(!self.has(&names.run), "{case}: it is said to be forgotten: {self:?}");
                }
            }
            Err(_) => {
                assert!(
                    self.has(&names.run) && self.has(&names.below),
                    "{case}: {answer:?}, {self:?}"
                );
                assert!(self.has_text, "{case}: {answer:?}, but the text is gone");
            }
        }
    }

    /// Checks that the actor has everything that it depends on.
    fn check_actor(
        &self,
        names: &Names,
        intruder: Intruder,
        acted: &Result<(), LogError>,
        answer: &Answer,
        case: &str,
    ) {
        if acted.is_err() {
            return;
        }
        match intruder {
            Intruder::Begin | Intruder::Reopen if matches!(answer, Ok((_, Some(_)))) => {
                // A run that began after the removal is complete.
                assert!(!self.has(&names.next), "{case}: a run follows one that is gone: {self:?}");
            }
            Intruder::Begin | Intruder::Reopen => {
                assert!(self.has(&names.run) && self.has_text, "{case}: {answer:?}, {self:?}");
            }
            Intruder::Fork => {
                if let Ok((_, Some(forks))) = answer {
                    let is_named = forks.iter().any(|fork| fork.as_str() == names.copy);
                    assert!(is_named, "{case}: the copy is not named: {answer:?}");
                }
            }
            Intruder::Store => {
                let is_forgotten = matches!(answer, Ok((_, Some(_))));
                assert!(self.has_text || is_forgotten, "{case}: another run refers to the text");
            }
        }
    }
}

type Hook<'a> = Box<dyn Fn() -> BoxFuture<'a, ()> + Send + Sync + 'a>;

/// A shelf that lets an actor act before one of its steps.
struct Interrupted<'a, S> {
    shelf: &'a S,
    hook: Hook<'a>,
    step: usize,
    steps: AtomicUsize,
}

impl<S> Interrupted<'_, S> {
    async fn step(&self) {
        if self.steps.fetch_add(1, Ordering::SeqCst) == self.step {
            (self.hook)().await;
        }
    }
}

#[async_trait]
impl<S: RunShelf> RunShelf for Interrupted<'_, S> {
    async fn sweep(&self) -> Result<(), StoreError> {
        self.step().await;
        self.shelf.sweep().await
    }

    async fn old_runs(
        &self,
        until: Timestamp,
        states: &[RunState],
        after: Option<&OldRun>,
    ) -> Result<Vec<OldRun>, StoreError> {
        self.step().await;
        self.shelf.old_runs(until, states, after).await
    }

    async fn connected_runs(&self, runs: &[RunId]) -> Result<Vec<RunRow>, StoreError> {
        self.step().await;
        self.shelf.connected_runs(runs).await
    }

    async fn session_runs(&self, sessions: &[SessionId]) -> Result<Vec<RunRow>, StoreError> {
        self.step().await;
        self.shelf.session_runs(sessions).await
    }

    async fn segments(&self) -> Result<Vec<RunRow>, StoreError> {
        self.shelf.segments().await
    }

    async fn subscriptions(&self) -> Result<Vec<Subscription>, StoreError> {
        self.shelf.subscriptions().await
    }

    async fn mark_forgetting(&self, session: &SessionId) -> Result<i64, StoreError> {
        self.step().await;
        self.shelf.mark_forgetting(session).await
    }

    async fn unmark_forgetting(&self, marks: &[i64]) -> Result<(), StoreError> {
        self.step().await;
        self.shelf.unmark_forgetting(marks).await
    }

    async fn taken_run(&self, sessions: &[SessionId]) -> Result<Option<RunId>, StoreError> {
        self.step().await;
        self.shelf.taken_run(sessions).await
    }

    async fn remove(
        &self,
        tree: &[&RunRow],
        removal: &Removal,
        removed: &mut Removed,
    ) -> Result<bool, StoreError> {
        self.step().await;
        self.shelf.remove(tree, removal, removed).await
    }

    async fn queued_runs(&self, session: &SessionId) -> Result<Vec<RunId>, StoreError> {
        self.step().await;
        self.shelf.queued_runs(session).await
    }

    async fn session_family(&self, session: &SessionId) -> Result<Vec<SessionId>, StoreError> {
        self.step().await;
        self.shelf.session_family(session).await
    }

    async fn take_session(
        &self,
        session: &SessionId,
        removal: &Removal,
        removed: &mut Removed,
    ) -> Result<(), StoreError> {
        self.step().await;
        self.shelf.take_session(session, removal, removed).await
    }
}
