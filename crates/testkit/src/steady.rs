use std::sync::Arc;

use async_trait::async_trait;
use backstop_clock::VirtualClock;
use backstop_event_log::{
    Batch, Claim, Cursor, EventFeed, EventFilter, EventLog, EventWatch, FeedPage, Inbox,
    InboxMessage, InboxRequest, InboxWatch, InboxWatches, Lease, Log, LogError, OpenApproval,
    Ports, Record, RunFilter, RunSummary, Runs,
};
use layer0::Timestamp;
use layer0::id::{RunId, SessionId};
use tokio::sync::watch;

/// The log of one process on a virtual clock: no time passes while it works, on whatever thread its store does that. Its
/// process can lose the right to act.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use std::sync::Arc;
///
/// use backstop_clock::VirtualClock;
/// use backstop_event_log::{Log, MemoryLog};
/// use backstop_testkit::SteadyLog;
///
/// let clock = VirtualClock::starting_at(Default::default());
/// let log = SteadyLog::new(Arc::new(MemoryLog::new()), &clock);
/// let claim = log.claim_new(&"run_1".into());
/// assert!(claim.lease().is_some_and(|lease| lease.may_start()));
/// log.lose();
/// assert!(claim.lease().is_some_and(|lease| !lease.may_start()));
/// # }
/// ```
pub struct SteadyLog {
    log: Arc<dyn EventLog>,
    clock: VirtualClock,
    inboxes: InboxWatches,
    lease: Arc<LosableLease>,
}

/// A lease that lasts until a test ends it.
struct LosableLease(watch::Sender<bool>);

impl SteadyLog {
    /// Wraps a log.
    #[must_use]
    pub fn new(log: Arc<dyn EventLog>, clock: &VirtualClock) -> Self {
        let (clock, inboxes) = (clock.clone(), InboxWatches::default());
        Self { log, clock, inboxes, lease: Arc::new(LosableLease(watch::Sender::new(false))) }
    }

    /// Ends the right to act: appends fail from now on.
    pub fn lose(&self) {
        self.lease.0.send_replace(true);
    }

    fn own_lease(&self) -> Arc<dyn Lease> {
        Arc::clone(&self.lease) as Arc<dyn Lease>
    }
}

impl std::fmt::Debug for SteadyLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SteadyLog").field("clock", &self.clock).finish_non_exhaustive()
    }
}

#[async_trait]
impl Lease for LosableLease {
    fn may_start(&self) -> bool {
        !*self.0.borrow()
    }
    async fn until_may_start(&self) {
        if !self.may_start() {
            std::future::pending::<()>().await;
        }
    }
    async fn wait_for_end(&self) {
        // The sender lives as long as the lease.
        let _is_lost = self.0.subscribe().wait_for(|is_lost| *is_lost).await.is_ok();
    }
}

impl EventLog for SteadyLog {
    fn ports(&self) -> Ports<'_> {
        self.log.ports().log(self).feed(self).runs(self).inbox(self)
    }
}

#[async_trait]
impl Log for SteadyLog {
    fn lease(&self) -> Option<Arc<dyn Lease>> {
        Some(self.own_lease())
    }
    async fn claim(&self, run: &RunId) -> Result<Claim, LogError> {
        let _hold = self.clock.hold();
        Ok(self.log.claim(run).await?.under(self.own_lease()))
    }
    fn claim_new(&self, run: &RunId) -> Claim {
        self.log.claim_new(run).under(self.own_lease())
    }
    fn append_now(&self, batch: &mut Batch) -> Option<Result<(), LogError>> {
        match self.lease.may_start() {
            true => self.log.append_now(batch),
            false => Some(Err(self.lease.loss(&batch.run))),
        }
    }
    async fn append(&self, batch: Batch) -> Result<(), LogError> {
        let _hold = self.clock.hold();
        match self.lease.may_start() {
            true => self.log.append(batch).await,
            false => Err(self.lease.loss(&batch.run)),
        }
    }
    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, LogError> {
        let _hold = self.clock.hold();
        self.log.summary(run).await
    }
    async fn records(&self, run: &RunId, from_seq: u64) -> Result<Vec<Record>, LogError> {
        let _hold = self.clock.hold();
        self.log.records(run, from_seq).await
    }
}

#[async_trait]
impl EventFeed for SteadyLog {
    async fn read_feed(&self, filter: &EventFilter, cursor: &Cursor) -> Result<FeedPage, LogError> {
        let _hold = self.clock.hold();
        self.log.read_feed(filter, cursor).await
    }
    fn watch_events(&self) -> EventWatch {
        self.log.watch_events()
    }
}

#[async_trait]
impl Runs for SteadyLog {
    async fn runs(&self, filter: RunFilter) -> Result<Vec<RunSummary>, LogError> {
        let _hold = self.clock.hold();
        self.log.runs(filter).await
    }
    async fn last_root(&self, session: &SessionId) -> Result<Option<RunSummary>, LogError> {
        let _hold = self.clock.hold();
        self.log.last_root(session).await
    }
}

#[async_trait]
impl Inbox for SteadyLog {
    async fn open_approvals(&self) -> Result<Vec<OpenApproval>, LogError> {
        let _hold = self.clock.hold();
        self.log.open_approvals().await
    }
    async fn send(&self, request: InboxRequest, by: &str, at: Timestamp) -> Result<bool, LogError> {
        let _hold = self.clock.hold();
        let run = match &request {
            InboxRequest::Cancel { run }
            | InboxRequest::Input { run, .. }
            | InboxRequest::Settle { run, .. }
            | InboxRequest::Signal { run, .. } => Some(run.clone()),
            decision => {
                let open = self.log.open_approvals().await?;
                let approval = decision.decides();
                open.into_iter().find(|open| Some(&open.id) == approval).map(|open| open.run)
            }
        };
        let is_accepted = self.log.send(request, by, at).await?;
        if let Some(run) = run {
            self.inboxes.ring(&run);
        }
        Ok(is_accepted)
    }
    async fn inbox(&self, run: &RunId) -> Result<Vec<InboxMessage>, LogError> {
        let _hold = self.clock.hold();
        self.log.inbox(run).await
    }
    fn watch_inbox(&self, run: &RunId) -> InboxWatch {
        self.inboxes.watch(run)
    }
}
