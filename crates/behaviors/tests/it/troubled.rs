//! A log that fails on request, and records its reads.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use backstop_event_log::*;
use layer0::id::RunId;

/// A log behind injected failures.
pub(crate) struct Troubled {
    pub(crate) inner: Arc<dyn EventLog>,
    /// Number of reads of the feed that are refused because of a lock.
    pub(crate) locked_reads: AtomicU32,
    /// Whether claims are takeovers from a process that died.
    pub(crate) is_takeover: AtomicBool,
    /// The reads of records: the run, and the first event.
    pub(crate) read: Mutex<Vec<(RunId, u64)>>,
}

impl Troubled {
    pub(crate) fn new(inner: Arc<dyn EventLog>) -> Arc<Self> {
        let (locked_reads, is_takeover) = (AtomicU32::new(0), AtomicBool::new(false));
        Arc::new(Self { inner, locked_reads, is_takeover, read: Mutex::default() })
    }
}

impl EventLog for Troubled {
    fn ports(&self) -> Ports<'_> {
        self.inner.ports().log(self).feed(self)
    }
}

#[async_trait]
impl Log for Troubled {
    async fn records(&self, run: &RunId, from: u64) -> Result<Vec<Record>, LogError> {
        self.read.lock().unwrap().push((run.clone(), from));
        self.inner.records(run, from).await
    }
    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, LogError> {
        self.inner.summary(run).await
    }
    async fn claim(&self, run: &RunId) -> Result<Claim, LogError> {
        let claim = self.inner.claim(run).await?;
        match self.is_takeover.load(Ordering::SeqCst) {
            true => Ok(claim.takeover()),
            false => Ok(claim),
        }
    }
    fn claim_new(&self, run: &RunId) -> Claim {
        self.inner.claim_new(run)
    }
    async fn append(&self, batch: Batch) -> Result<(), LogError> {
        self.inner.append(batch).await
    }
}

#[async_trait]
impl EventFeed for Troubled {
    async fn read_feed(&self, filter: &EventFilter, cursor: &Cursor) -> Result<FeedPage, LogError> {
        let takes_one = |left: u32| left.checked_sub(1);
        let left = &self.locked_reads;
        if left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, takes_one).is_ok() {
            return Err(LogError::Locked("another process writes".into()));
        }
        self.inner.read_feed(filter, cursor).await
    }
    fn watch_events(&self) -> EventWatch {
        self.inner.watch_events()
    }
}
