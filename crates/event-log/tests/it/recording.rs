//! Helpers that record runs.

use std::sync::Arc;

use backstop_event_log::{EventLog, MemoryLog, RunWriter, Seed};
use layer0::Timestamp;
use layer0::event::{Actor, AgentRecord, EventKind, RunStarted};
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
