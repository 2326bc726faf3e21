use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use backstop_event_log::{Batch, Claim, EventLog, Log, LogError, Ports, Record, RunSummary};
use layer0::id::RunId;

/// A log that stores its appends, in order. Each prefix of them is the record of a process that died at that point; see
/// [`append_all`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use std::sync::Arc;
///
/// use backstop_event_log::MemoryLog;
/// use backstop_testkit::{Tape, append_all};
///
/// let tape = Tape::new(Arc::new(MemoryLog::new()));
/// // A run that writes to `tape` …
/// for count in 0..=tape.batches().len() {
///     let log = MemoryLog::new();
///     append_all(&tape.batches()[..count], &log).await;
///     // … is resumed from `log`.
/// }
/// # }
/// ```
pub struct Tape {
    log: Arc<dyn EventLog>,
    batches: Mutex<Vec<Batch>>,
}

impl Tape {
    /// Stores the appends to a log.
    #[must_use]
    pub fn new(log: Arc<dyn EventLog>) -> Self {
        Self { log, batches: Mutex::default() }
    }

    /// Returns the appends that succeeded, in order.
    #[must_use]
    pub fn batches(&self) -> Vec<Batch> {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl std::fmt::Debug for Tape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tape").field("batches", &self.batches).finish_non_exhaustive()
    }
}

/// Appends batches to an empty log under claims of its own, which are free again afterwards.
///
/// # Panics
///
/// If the log refuses one.
pub async fn append_all(batches: &[Batch], log: &dyn EventLog) {
    let mut claims = BTreeMap::<RunId, (u64, Claim)>::new();
    for batch in batches {
        let mut batch = batch.clone();
        let claimed = claims.get(&batch.run).map(|(epoch, _)| *epoch);
        if claimed != Some(batch.epoch) {
            claims.remove(&batch.run);
            let claim = match claimed {
                None => log.claim_new(&batch.run),
                Some(_) => log.claim(&batch.run).await.expect("the run is free"),
            };
            claims.insert(batch.run.clone(), (batch.epoch, claim));
        }
        batch.epoch = claims[&batch.run].1.epoch();
        log.append(batch).await.expect("what was appended before is appended again");
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
        self.batches.lock().unwrap_or_else(PoisonError::into_inner).push(batch);
        Ok(())
    }
    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, LogError> {
        self.log.summary(run).await
    }
    async fn records(&self, run: &RunId, from_seq: u64) -> Result<Vec<Record>, LogError> {
        self.log.records(run, from_seq).await
    }
}
