//! Stores with the faults that a scenario defines.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use backstop_config::{LogFaultTable, StoreFault, StoreFaultTable};
use backstop_error_store::{
    ErrorFilter, ErrorRecord, ErrorStats, ErrorStore, Hold, Lookup, NewError, NewResult, Pruned,
    ResultEntry, ResultFilter, ResultRecord, ResultStore, Retention, StoreError, StoredError,
};
use backstop_event_log::{Batch, Claim, EventLog, Log, LogError, Ports, Record, RunSummary};
use layer0::Timestamp;
use layer0::id::{ErrorId, ResultId, RunId, SessionId};

use crate::marks::{Marks, ReachMark};

/// A log whose writes fail from a certain seq; reads work, so that a report can be made.
pub(crate) struct FaultyLog {
    log: Arc<dyn EventLog>,
    from: u64,
    mark: ReachMark,
}

impl FaultyLog {
    /// Wraps a log if the scenario wants it to fail.
    pub(crate) fn wrap(
        log: Arc<dyn EventLog>,
        table: LogFaultTable,
        marks: &Marks,
    ) -> Arc<dyn EventLog> {
        match table.fail_at_seq {
            Some(from) => {
                let mark = marks.add(format!("fault of the log at seq {from}"));
                Arc::new(Self { log, from, mark })
            }
            None => log,
        }
    }
}

impl EventLog for FaultyLog {
    fn ports(&self) -> Ports<'_> {
        self.log.ports().log(self)
    }
}

#[async_trait]
impl Log for FaultyLog {
    async fn claim(&self, run: &RunId) -> Result<Claim, LogError> {
        self.log.claim(run).await
    }

    fn claim_new(&self, run: &RunId) -> Claim {
        self.log.claim_new(run)
    }

    async fn append(&self, batch: Batch) -> Result<(), LogError> {
        if batch.records.iter().any(|record| record.seq >= self.from) {
            self.mark.reach();
            return Err(LogError::Failed("the log takes no more events".into()));
        }
        self.log.append(batch).await
    }

    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, LogError> {
        self.log.summary(run).await
    }

    async fn records(&self, run: &RunId, from_seq: u64) -> Result<Vec<Record>, LogError> {
        self.log.records(run, from_seq).await
    }
}

/// A fault of the scenario, with the number of times that it still occurs.
struct ScriptedFault {
    fault: StoreFault,
    /// Remaining occurrences; `None` means unlimited.
    left: Option<AtomicU32>,
    mark: ReachMark,
}

impl ScriptedFault {
    fn new(fault: StoreFault, table: StoreFaultTable, mark: ReachMark) -> Self {
        let times = table.locked_times.filter(|_| fault == StoreFault::Locked);
        Self { fault, left: times.map(AtomicU32::new), mark }
    }

    fn check(&self) -> Result<(), StoreError> {
        self.mark.reach();
        if let Some(left) = &self.left
            && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_err()
        {
            return Ok(());
        }
        Err(match self.fault {
            StoreFault::DiskFull => StoreError::Full("database or disk is full".into()),
            StoreFault::Locked => StoreError::Locked("database is locked".into()),
            _ => StoreError::Closed,
        })
    }
}

/// A store of large results with the faults that a scenario defines.
pub(crate) struct FaultyResultStore {
    store: Arc<dyn ResultStore>,
    fault: ScriptedFault,
}

impl FaultyResultStore {
    /// Wraps a store; `None` when the scenario wants no store at all.
    pub(crate) fn wrap(
        store: Arc<dyn ResultStore>,
        table: StoreFaultTable,
        marks: &Marks,
    ) -> Option<Arc<dyn ResultStore>> {
        match table.fail {
            None => Some(store),
            Some(StoreFault::None) => None,
            Some(fault) => {
                let fault =
                    ScriptedFault::new(fault, table, marks.add("fault of the result store"));
                Some(Arc::new(Self { store, fault }))
            }
        }
    }
}

#[async_trait]
impl ResultStore for FaultyResultStore {
    async fn put(&self, result: NewResult) -> Result<ResultId, StoreError> {
        self.fault.check()?;
        self.store.put(result).await
    }

    async fn keep(&self, result: ResultRecord) -> Result<(), StoreError> {
        self.fault.check()?;
        self.store.keep(result).await
    }

    async fn keep_expired(&self, session: &SessionId, id: &ResultId) -> Result<(), StoreError> {
        self.fault.check()?;
        self.store.keep_expired(session, id).await
    }

    async fn get(
        &self,
        session: &SessionId,
        id: &ResultId,
    ) -> Result<Lookup<ResultRecord>, StoreError> {
        self.fault.check()?;
        self.store.get(session, id).await
    }

    async fn find(&self, id: &ResultId) -> Result<Lookup<ResultRecord>, StoreError> {
        self.fault.check()?;
        self.store.find(id).await
    }

    async fn list(&self, filter: ResultFilter) -> Result<Vec<ResultEntry>, StoreError> {
        self.fault.check()?;
        self.store.list(filter).await
    }

    async fn prune(&self, retention: Retention, now: Timestamp) -> Result<Pruned, StoreError> {
        self.fault.check()?;
        self.store.prune(retention, now).await
    }

    fn hold(&self, session: &SessionId) -> Hold {
        self.store.hold(session)
    }
}

/// An error store with the faults that a scenario defines; listing works, so that a report can be made.
pub(crate) struct FaultyErrorStore {
    store: Arc<dyn ErrorStore>,
    fault: ScriptedFault,
}

impl FaultyErrorStore {
    /// Wraps a store; `None` when the scenario wants no store at all.
    pub(crate) fn wrap(
        store: Arc<dyn ErrorStore>,
        table: StoreFaultTable,
        marks: &Marks,
    ) -> Option<Arc<dyn ErrorStore>> {
        match table.fail {
            None => Some(store),
            Some(StoreFault::None) => None,
            Some(fault) => {
                let fault = ScriptedFault::new(fault, table, marks.add("fault of the error store"));
                Some(Arc::new(Self { store, fault }))
            }
        }
    }
}

#[async_trait]
impl ErrorStore for FaultyErrorStore {
    async fn store(&self, error: NewError) -> Result<StoredError, StoreError> {
        self.fault.check()?;
        self.store.store(error).await
    }

    async fn keep(&self, error: ErrorRecord) -> Result<(), StoreError> {
        self.fault.check()?;
        self.store.keep(error).await
    }

    async fn keep_expired(&self, session: &SessionId, id: &ErrorId) -> Result<(), StoreError> {
        self.fault.check()?;
        self.store.keep_expired(session, id).await
    }

    async fn get(
        &self,
        session: &SessionId,
        id: &ErrorId,
    ) -> Result<Lookup<ErrorRecord>, StoreError> {
        self.fault.check()?;
        self.store.get(session, id).await
    }

    async fn find(&self, id: &ErrorId) -> Result<Lookup<ErrorRecord>, StoreError> {
        self.store.find(id).await
    }

    async fn list(&self, filter: ErrorFilter) -> Result<Vec<ErrorRecord>, StoreError> {
        self.store.list(filter).await
    }

    async fn prune(&self, retention: Retention, now: Timestamp) -> Result<Pruned, StoreError> {
        self.fault.check()?;
        self.store.prune(retention, now).await
    }

    async fn stats(&self, limit: Option<u32>) -> Result<Vec<ErrorStats>, StoreError> {
        self.fault.check()?;
        self.store.stats(limit).await
    }

    fn hold(&self, session: &SessionId) -> Hold {
        self.store.hold(session)
    }
}
