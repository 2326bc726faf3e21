//! Helpers that record runs.

use std::sync::Arc;

use async_trait::async_trait;
use backstop_event_log::*;
use layer0::Timestamp;
use layer0::event::{Actor, AgentRecord, EventKind, LostTail, RunStarted};
use layer0::id::RunId;
use serde_json::json;

pub(crate) fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

pub(crate) fn agent() -> AgentRecord {
    AgentRecord::new("demo", "d", json!({ "name": "demo", "budget": { "max_model_calls": 3 } }))
}

/// Returns the first event of a run in this session.
pub(crate) fn started(session: &str) -> RunStarted {
    let mut started = RunStarted::new("hello", session.into(), agent());
    started.machine = 1;
    started
}

pub(crate) fn memory() -> Arc<dyn EventLog> {
    Arc::new(MemoryLog::new())
}

/// Records events of a new run, a second apart, and returns its writer.
pub(crate) async fn record(
    log: &Arc<dyn EventLog>,
    run: &str,
    kinds: impl IntoIterator<Item = EventKind>,
) -> RunWriter {
    let mut writer = RunWriter::new(Arc::clone(log), run.into());
    for (second, kind) in (0..).zip(kinds) {
        stage(&mut writer, 1_000 * second, kind);
    }
    writer.commit().await.unwrap();
    writer
}

pub(crate) fn stage(writer: &mut RunWriter, ms: i64, kind: impl Into<EventKind>) {
    writer.stage(&Seed::new("test"), at(ms), Actor::Runtime, None, kind.into());
}

/// A log that can do no more than it must, except for what a test adds.
#[derive(Default)]
pub(crate) struct PlainLog {
    pub(crate) inner: MemoryLog,
    /// The runs that have lost their tails.
    pub(crate) lost: Vec<LostRun>,
    /// A run whose summary cannot be read.
    pub(crate) unreadable: Option<RunId>,
    /// The key of the log, with the HMACs of each run.
    pub(crate) seals: Option<(LogKey, RunSeals)>,
}

impl EventLog for PlainLog {
    fn ports(&self) -> Ports<'_> {
        let inner = &self.inner;
        Ports::new(self).runs(inner).inbox(inner).lost_tails(self).seals(self)
    }
}

#[async_trait]
impl Log for PlainLog {
    async fn claim(&self, run: &RunId) -> Result<Claim, LogError> {
        self.inner.claim(run).await
    }

    fn claim_new(&self, run: &RunId) -> Claim {
        self.inner.claim_new(run)
    }

    async fn append(&self, batch: Batch) -> Result<(), LogError> {
        self.inner.append(batch).await
    }

    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, LogError> {
        match self.unreadable.as_ref() == Some(run) {
            true => Err(LogError::unreadable_run(run.clone(), "not a summary")),
            false => self.inner.summary(run).await,
        }
    }

    async fn records(&self, run: &RunId, from_seq: u64) -> Result<Vec<Record>, LogError> {
        self.inner.records(run, from_seq).await
    }
}

#[async_trait]
impl LostTails for PlainLog {
    async fn claim_with_loss(&self, run: &RunId) -> Result<(Claim, Option<LostTail>), LogError> {
        Ok((self.claim(run).await?, None))
    }

    async fn lost_tails(&self) -> Result<Vec<LostRun>, LogError> {
        Ok(self.lost.clone())
    }
}

#[async_trait]
impl Seals for PlainLog {
    fn key(&self) -> Option<&LogKey> {
        self.seals.as_ref().map(|(key, _)| key)
    }

    fn seals_rows(&self) -> bool {
        self.seals.is_some()
    }

    async fn seals(&self, _: &RunId) -> Result<Option<RunSeals>, LogError> {
        Ok(self.seals.as_ref().map(|(_, seals)| seals.clone()))
    }
}
