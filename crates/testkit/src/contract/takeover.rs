//! The guarantee that a run no longer acts in its first process after another one took it over.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use backstop_error_store::{ErrorStore, ResultStore, Store};
use backstop_event_log::{
    Batch, Claim, EventLog, Lease, Log, LogError, Ports, Record, RunFilter, RunSummary, verify_run,
};
use futures_util::stream::{self, StreamExt};
use layer0::StateStore;
use layer0::id::RunId;
use tokio::sync::oneshot;

/// Number of concurrent cases: each waits for a process to count as dead.
const SIDE_BY_SIDE: usize = 8;

/// Two processes that share a store; the first one can lose its right to act.
#[async_trait]
pub trait TwoProcesses: Send + Sync {
    /// Returns the stores of the process that begins the run.
    fn first(&self) -> Arc<dyn Store>;

    /// Returns the stores of the process that takes over the run.
    fn second(&self) -> Arc<dyn Store>;

    /// Revokes the first process's right to act, without informing it. A claim by the second one succeeds after a
    /// while.
    async fn cut_off(&self);

    /// Lets the first process reach the store again, if it could not.
    async fn let_back(&self);
}

/// A run that acts on the world, and records each act in a [`Ledger`].
#[async_trait]
pub trait ActingRun: Send + Sync {
    /// Runs to the end. The error is the text for the caller.
    async fn begin(&self, stores: Arc<dyn Store>, ledger: Ledger) -> Result<String, String>;

    /// Resumes the run that [`begin`](ActingRun::begin) began, until it ends; begins it if it has no record.
    async fn resume(&self, stores: Arc<dyn Store>, ledger: Ledger) -> Result<String, String>;
}

/// The acts of a run, by process.
#[derive(Debug, Clone)]
pub struct Ledger {
    is_second: bool,
    shared: Arc<SharedActs>,
}

#[derive(Debug, Default)]
struct SharedActs {
    is_taken: AtomicBool,
    acts: Mutex<Vec<Act>>,
}

#[derive(Debug, Clone)]
struct Act {
    name: String,
    is_second: bool,
    follows_takeover: bool,
}

impl Ledger {
    /// Records an act at the moment of its effect.
    pub fn act(&self, name: impl Into<String>) {
        let follows_takeover = self.shared.is_taken.load(Ordering::SeqCst);
        let act = Act { name: name.into(), is_second: self.is_second, follows_takeover };
        self.shared.acts.lock().unwrap_or_else(PoisonError::into_inner).push(act);
    }
}

impl SharedActs {
    fn acts(&self) -> Vec<Act> {
        self.acts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Stops a run after each of its appends, between "recorded" and "begun", lets the second process take over and finish
/// it, and lets the first process continue. The first process acts no more and learns that the run is not its own; acts
/// named in `once` happen at most once, and in some case they do; the record is complete. Returns the number of
/// takeovers.
///
/// # Panics
///
/// If a guarantee does not hold.
pub async fn takeovers<O, F>(open: O, run: Arc<dyn ActingRun>, once: &[&str]) -> usize
where
    O: Fn() -> F,
    F: Future<Output = Arc<dyn TwoProcesses>>,
{
    let cases = stream::iter(1..).map(|at| check(open(), Arc::clone(&run), once, at));
    let mut cases = std::pin::pin!(cases.buffered(SIDE_BY_SIDE));
    let (mut count, mut done) = (0, BTreeSet::new());
    while let Some(Some(acts)) = cases.next().await {
        count += 1;
        done.extend(acts);
    }
    assert!(count > 0, "the run appends something");
    let never = once.iter().find(|name| !done.contains(**name));
    assert!(never.is_none(), "`{}` was done in no case: {done:?}", never.unwrap_or(&""));
    count
}

/// Lets a run be taken over after its append `at`, and returns the names of its acts; `None` if it has not that many
/// appends.
async fn check(
    open: impl Future<Output = Arc<dyn TwoProcesses>>,
    run: Arc<dyn ActingRun>,
    once: &[&str],
    at: usize,
) -> Option<BTreeSet<String>> {
    let (processes, shared) = (open.await, Arc::<SharedActs>::default());
    let ledger = |is_second| Ledger { is_second, shared: Arc::clone(&shared) };
    let handover =
        Handover { processes: Arc::clone(&processes), run: Arc::clone(&run), ledger: ledger(true) };
    let stores = processes.first();
    let log = Arc::new(HandoverLog {
        inner: stores.log(),
        handover: Arc::new(handover),
        at,
        appends: AtomicUsize::new(0),
        answer: Mutex::new(None),
    });
    let stores = Arc::new(HandoverStores { inner: stores, log: Arc::clone(&log) });
    let first = run.begin(stores, ledger(false)).await;
    let answer = log.answer.lock().unwrap_or_else(PoisonError::into_inner).take();
    let (behind, second) = answer?;
    let case = format!("taken over behind append {at} ({behind})");
    let second = second.await.unwrap_or_else(|_| panic!("{case}: the second process panicked"));
    let acts = shared.acts();
    let second = second.unwrap_or_else(|error| panic!("{case}: the second process: {error}"));
    if let Ok(first) = first {
        assert_eq!(first, second, "{case}: a run that is another's is over for the first");
    }
    let late = acts.iter().find(|act| !act.is_second && act.follows_takeover);
    assert!(late.is_none(), "{case}: the first process acts: {acts:?}");
    for name in once {
        let times = acts.iter().filter(|act| act.name == *name).count();
        assert!(times <= 1, "{case}: `{name}` was done {times} times: {acts:?}");
    }
    let log = processes.second().log();
    for run in log.runs(RunFilter::new()).await.expect("runs are listed") {
        assert!(!run.is_open(), "{case}: {} is {:?}", run.agent, run.state);
        let verified = verify_run(&*log, &run.run).await;
        assert!(verified.is_ok(), "{case}: {}: {verified:?}", run.agent);
    }
    Some(acts.into_iter().map(|act| act.name).collect())
}

/// The events after which the run was taken over, and the answer of the second process, once there is one.
type Answer = (String, oneshot::Receiver<Result<String, String>>);

/// The second process of a case.
struct Handover {
    processes: Arc<dyn TwoProcesses>,
    run: Arc<dyn ActingRun>,
    /// The ledger of the second process.
    ledger: Ledger,
}

impl Handover {
    async fn perform(&self) -> Result<String, String> {
        self.processes.cut_off().await;
        let answer = self.run.resume(self.processes.second(), self.ledger.clone()).await;
        self.ledger.shared.is_taken.store(true, Ordering::SeqCst);
        self.processes.let_back().await;
        answer
    }
}

/// The stores of the first process.
struct HandoverStores {
    inner: Arc<dyn Store>,
    log: Arc<HandoverLog>,
}

impl Store for HandoverStores {
    fn log(&self) -> Arc<dyn EventLog> {
        Arc::clone(&self.log) as Arc<dyn EventLog>
    }
    fn errors(&self) -> Arc<dyn ErrorStore> {
        self.inner.errors()
    }
    fn results(&self) -> Arc<dyn ResultStore> {
        self.inner.results()
    }
    fn state(&self) -> Option<Arc<dyn StateStore>> {
        self.inner.state()
    }
}

/// The log of the first process, which hands its run over after an append.
struct HandoverLog {
    inner: Arc<dyn EventLog>,
    handover: Arc<Handover>,
    at: usize,
    appends: AtomicUsize,
    answer: Mutex<Option<Answer>>,
}

impl HandoverLog {
    /// Hands the run over in a task of its own, because the first process may drop its append meanwhile.
    async fn hand_over(&self, behind: String) {
        let (done, answer) = oneshot::channel();
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some((behind, answer));
        let handover = Arc::clone(&self.handover);
        let second = tokio::spawn(async move {
            // A case that has ended no longer waits for it.
            let _is_waited_for = done.send(handover.perform().await).is_ok();
        });
        let _has_ended = second.await.is_ok();
    }
}

impl EventLog for HandoverLog {
    fn ports(&self) -> Ports<'_> {
        self.inner.ports().log(self)
    }
}

#[async_trait]
impl Log for HandoverLog {
    fn lease(&self) -> Option<Arc<dyn Lease>> {
        self.inner.lease()
    }
    async fn claim(&self, run: &RunId) -> Result<Claim, LogError> {
        self.inner.claim(run).await
    }
    fn claim_new(&self, run: &RunId) -> Claim {
        self.inner.claim_new(run)
    }
    async fn append(&self, batch: Batch) -> Result<(), LogError> {
        let types: Vec<&str> = batch.records.iter().map(|record| &*record.event_type).collect();
        let behind = format!("{}: {}", batch.summary.agent, types.join(", "));
        self.inner.append(batch).await?;
        if self.appends.fetch_add(1, Ordering::SeqCst) + 1 == self.at {
            self.hand_over(behind).await;
        }
        Ok(())
    }
    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, LogError> {
        self.inner.summary(run).await
    }
    async fn kept_summary(&self, run: &RunId) -> Result<Option<RunSummary>, LogError> {
        self.inner.kept_summary(run).await
    }
    async fn records(&self, run: &RunId, from_seq: u64) -> Result<Vec<Record>, LogError> {
        self.inner.records(run, from_seq).await
    }
}
