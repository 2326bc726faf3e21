//! A log that remembers its appends, so that a process can die after each of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use backstop_event_log::{
    Batch, Claim, EventLog, Log, LogError, MemoryLog, Ports, Record, RunSummary,
};
use layer0::id::RunId;

/// A log that remembers its appends, in order.
#[derive(Default)]
pub(crate) struct Tape {
    pub(crate) log: MemoryLog,
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

impl EventLog for Tape {
    fn ports(&self) -> Ports<'_> {
        self.log.ports().log(self)
    }
}

#[async_trait]
impl Log for Tape {
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
