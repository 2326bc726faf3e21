//! A log in memory whose accesses a test can fail, or let something else happen before.

use std::sync::Arc;

use async_trait::async_trait;
use backstop_event_log::{
    Batch, Claim, EventLog, Inbox, InboxMessage, InboxRequest, InboxWatch, Lease, Log, LogError,
    MemoryLog, OpenApproval, Ports, Record, RunSummary,
};
use futures_util::future::BoxFuture;
use layer0::Timestamp;
use layer0::id::RunId;

/// An access to the log, before it is carried out.
pub(crate) enum Access {
    Append(Box<Batch>),
    Claim,
    Inbox,
    Records,
    Send(InboxRequest),
    Summary,
}

type Interceptor = Box<dyn Fn(Access) -> BoxFuture<'static, Result<(), LogError>> + Send + Sync>;

type Change = Box<dyn Fn(&mut [Record]) + Send + Sync>;

/// A log that asks a test before each access; an error is the answer of the access.
pub(crate) struct InterceptedLog {
    log: Arc<MemoryLog>,
    before: Interceptor,
    lease: Option<Arc<dyn Lease>>,
    /// Changes the records of each read.
    change: Change,
}

impl InterceptedLog {
    pub(crate) fn new(
        log: &Arc<MemoryLog>,
        before: impl Fn(Access) -> BoxFuture<'static, Result<(), LogError>> + Send + Sync + 'static,
    ) -> Self {
        let (before, change) = (Box::new(before), Box::new(|_: &mut [Record]| {}));
        Self { log: Arc::clone(log), before, lease: None, change }
    }

    /// Changes the records of each read, as somebody who writes into the store would.
    pub(crate) fn changing(
        log: &Arc<MemoryLog>,
        change: impl Fn(&mut [Record]) + Send + Sync + 'static,
    ) -> Self {
        Self { change: Box::new(change), ..Self::failing(log, |_| None) }
    }

    /// Lets the process act under this lease.
    pub(crate) fn leased(log: &Arc<MemoryLog>, lease: Arc<dyn Lease>) -> Self {
        Self { lease: Some(lease), ..Self::failing(log, |_| None) }
    }

    fn under_lease(&self, claim: Claim) -> Claim {
        match &self.lease {
            Some(lease) => claim.under(Arc::clone(lease)),
            None => claim,
        }
    }

    /// Asks before each access whether it fails.
    pub(crate) fn failing(
        log: &Arc<MemoryLog>,
        fails: impl Fn(Access) -> Option<LogError> + Send + Sync + 'static,
    ) -> Self {
        Self::new(log, move |access| {
            let answer = fails(access).map_or(Ok(()), Err);
            Box::pin(async { answer })
        })
    }
}

/// Returns the error of a log that cannot be reached.
pub(crate) fn unreachable() -> LogError {
    LogError::Unreachable("connection reset".into())
}

impl EventLog for InterceptedLog {
    fn ports(&self) -> Ports<'_> {
        self.log.ports().log(self).inbox(self)
    }
}

#[async_trait]
impl Log for InterceptedLog {
    fn lease(&self) -> Option<Arc<dyn Lease>> {
        self.lease.clone()
    }
    async fn claim(&self, run: &RunId) -> Result<Claim, LogError> {
        (self.before)(Access::Claim).await?;
        Ok(self.under_lease(self.log.claim(run).await?))
    }
    fn claim_new(&self, run: &RunId) -> Claim {
        self.under_lease(self.log.claim_new(run))
    }
    async fn append(&self, batch: Batch) -> Result<(), LogError> {
        (self.before)(Access::Append(Box::new(batch.clone()))).await?;
        self.log.append(batch).await
    }
    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, LogError> {
        (self.before)(Access::Summary).await?;
        self.log.summary(run).await
    }
    async fn records(&self, run: &RunId, from_seq: u64) -> Result<Vec<Record>, LogError> {
        (self.before)(Access::Records).await?;
        let mut records = self.log.records(run, from_seq).await?;
        (self.change)(&mut records);
        Ok(records)
    }
}

#[async_trait]
impl Inbox for InterceptedLog {
    async fn open_approvals(&self) -> Result<Vec<OpenApproval>, LogError> {
        self.log.open_approvals().await
    }
    async fn send(&self, request: InboxRequest, by: &str, at: Timestamp) -> Result<bool, LogError> {
        (self.before)(Access::Send(request.clone())).await?;
        self.log.send(request, by, at).await
    }
    async fn inbox(&self, run: &RunId) -> Result<Vec<InboxMessage>, LogError> {
        (self.before)(Access::Inbox).await?;
        self.log.inbox(run).await
    }
    fn watch_inbox(&self, run: &RunId) -> InboxWatch {
        self.log.watch_inbox(run)
    }
}
