//! A log to which something happens.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use backstop_clock::VirtualClock;
use backstop_event_log::{
    Batch, Claim, EventLog, Log, LogError, MemoryLog, Ports, Record, RunSummary,
};
use backstop_orchestrator::Workflow;
use layer0::Operator;
use layer0::id::RunId;

pub(crate) type Hook = Box<dyn FnOnce() -> futures_util::future::BoxFuture<'static, ()> + Send>;

/// A log to which something happens: before the n-th look at a run's summary, or at an append of a kind of event.
pub(crate) struct Tap {
    log: Arc<MemoryLog>,
    looks: AtomicU32,
    pub(crate) at: u32,
    pub(crate) hook: Mutex<Option<Hook>>,
    /// Appends of this operator's run that hold an event of this type fail, once.
    pub(crate) fails: Mutex<Option<(&'static str, &'static str)>>,
}

impl Tap {
    pub(crate) fn new(log: &Arc<MemoryLog>) -> Self {
        Self {
            log: Arc::clone(log),
            looks: AtomicU32::new(0),
            at: u32::MAX,
            hook: Mutex::new(None),
            fails: Mutex::new(None),
        }
    }
}

impl EventLog for Tap {
    fn ports(&self) -> Ports<'_> {
        self.log.ports().log(self)
    }
}

#[async_trait]
impl Log for Tap {
    async fn claim(&self, run: &RunId) -> Result<Claim, LogError> {
        self.log.claim(run).await
    }
    fn claim_new(&self, run: &RunId) -> Claim {
        self.log.claim_new(run)
    }
    async fn append(&self, batch: Batch) -> Result<(), LogError> {
        let is_it = |(agent, kind): (&str, &str)| {
            *batch.summary.agent == *agent && batch.records.iter().any(|it| &*it.event_type == kind)
        };
        let fails = self.fails.lock().unwrap().take_if(|it| is_it(*it)).is_some();
        if fails {
            return Err(LogError::Unreachable("connection reset".into()));
        }
        self.log.append(batch).await
    }
    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, LogError> {
        let seen = self.log.summary(run).await;
        if self.looks.fetch_add(1, Ordering::SeqCst) + 1 == self.at {
            let hook = self.hook.lock().unwrap().take();
            if let Some(hook) = hook {
                hook().await;
            }
        }
        seen
    }
    async fn records(&self, run: &RunId, from_seq: u64) -> Result<Vec<Record>, LogError> {
        self.log.records(run, from_seq).await
    }
}

pub(crate) fn recorded(
    operator: impl Operator + 'static,
    clock: &VirtualClock,
    log: Tap,
) -> Workflow {
    Workflow::new(operator, Arc::new(log)).clock(Arc::new(clock.clone()))
}
