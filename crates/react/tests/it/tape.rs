//! A log that remembers its appends, so that a process can die after each of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use backstop_event_log::{
    Batch, Claim, EventLog, InboxMessage, InboxRequest, InboxWatch, LogError, MemoryLog,
    OpenApproval, Record, RunFilter, RunSummary,
};
use layer0::Timestamp;
use layer0::id::{RunId, SessionId};

/// A log that remembers its appends, in order.
#[derive(Default)]
pub(crate) struct Tape {
    log: MemoryLog,
    batches: Mutex<Vec<Batch>>,
}

impl Tape {
    /// Returns a log with these appends, as a process finds it after another one died.
    pub(crate) async fn after(batches: &[Batch]) -> Arc<Self> {
        Arc::new(Self { log: cut(batches).await, batches: Mutex::new(batches.to_vec()) })
    }

    pub(crate) fn batches(&self) -> Vec<Batch> {
        self.batches.lock().unwrap().clone()
    }
}

#[async_trait]
impl EventLog for Tape {
    async fn claim(&self, run: &RunId) -> Result<Claim, LogError> {
        self.log.claim(run).await
    }
    fn claim_new(&self, run: &RunId) -> Claim {
        self.log.claim_new(run)
    }
    async fn append(&self, batch: Batch) -> Result<(), LogError> {
        self.log.append(batch.clone()).await?;
        self.batches.lock().unwrap().push(batch);
        Ok(())
    }
    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, LogError> {
        self.log.summary(run).await
    }
    async fn records(&self, run: &RunId, from_seq: u64) -> Result<Vec<Record>, LogError> {
        self.log.records(run, from_seq).await
    }
    async fn runs(&self, filter: RunFilter) -> Result<Vec<RunSummary>, LogError> {
        self.log.runs(filter).await
    }
    async fn last_root(&self, session: &SessionId) -> Result<Option<RunSummary>, LogError> {
        self.log.last_root(session).await
    }
    async fn open_approvals(&self) -> Result<Vec<OpenApproval>, LogError> {
        self.log.open_approvals().await
    }
    async fn send(&self, request: InboxRequest, by: &str, at: Timestamp) -> Result<bool, LogError> {
        self.log.send(request, by, at).await
    }
    async fn inbox(&self, run: &RunId) -> Result<Vec<InboxMessage>, LogError> {
        self.log.inbox(run).await
    }
    fn watch_inbox(&self, run: &RunId) -> InboxWatch {
        self.log.watch_inbox(run)
    }
}

/// Writes the first appends of a tape into a log of their own, as a process leaves them that dies.
pub(crate) async fn cut(batches: &[Batch]) -> MemoryLog {
    let log = MemoryLog::new();
    let mut claims = BTreeMap::<RunId, (u64, Claim)>::new();
    for batch in batches {
        let mut batch = batch.clone();
        let claimed = claims.get(&batch.run).map(|(epoch, _)| *epoch);
        if claimed != Some(batch.epoch) {
            claims.remove(&batch.run);
            let claim = match claimed {
                None => log.claim_new(&batch.run),
                Some(_) => log.claim(&batch.run).await.unwrap(),
            };
            claims.insert(batch.run.clone(), (batch.epoch, claim));
        }
        batch.epoch = claims[&batch.run].1.epoch();
        log.append(batch).await.unwrap();
    }
    log
}
