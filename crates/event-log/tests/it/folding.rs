//! The fold of a run's events into its summary.

use std::sync::Arc;

use backstop_event_log::{EventLog, MemoryLog, RunState, RunSummary, RunWriter, Seed};
use layer0::event::{
    Actor, AgentRecord, EventKind, ModelAttempted, ModelRequested, RunFailed, RunFinished,
    RunParked, RunRecovered, RunReopened, RunStarted, RunWaiting, ToolAttempted, ToolRequested,
    WaitFor,
};
use layer0::stop::Outcome;
use layer0::usage::{TokenUsage, Usage};
use layer0::{Code, Timestamp};
use serde_json::json;

/// Records events a second apart, and returns the summary.
async fn fold(kinds: Vec<EventKind>) -> RunSummary {
    let log: Arc<dyn EventLog> = Arc::new(MemoryLog::new());
    let mut writer = RunWriter::new(log, "run_1".into());
    let agent = AgentRecord::new("demo", "d", json!({ "name": "demo" }));
    let started = EventKind::from(RunStarted::new("hello", "ses_1".into(), agent));
    for (second, kind) in std::iter::once(started).chain(kinds).enumerate() {
        let at = Timestamp::from_millis(1_000 * i64::try_from(second).unwrap());
        writer.stage(&Seed::new("test"), at, Actor::Runtime, None, kind);
    }
    writer.commit().await.unwrap();
    writer.summary().clone()
}

fn failed() -> EventKind {
    let mut usage = Usage::default();
    usage.tool_calls = 3;
    RunFailed::new("provider.timeout", vec!["late".into()], usage).into()
}

/// Spec: D4
#[tokio::test]
async fn end_says_how_a_run_ended() {
    let summary = fold(vec![failed()]).await;
    assert_eq!((summary.state, summary.outcome), (RunState::Failed, Some(Outcome::Failed)));
    assert_eq!(summary.reason, Some(Code::new("provider.timeout")));
    assert_eq!(summary.finished_at, Some(Timestamp::from_millis(1_000)));
    assert_eq!((summary.usage.tool_calls, summary.is_open()), (3, false));

    let mut finished = RunFinished::new(Outcome::Incomplete, "hm", Usage::default());
    finished.reason = Some(Code::new("model.refusal"));
    let summary = fold(vec![finished.into()]).await;
    assert_eq!((summary.state, summary.outcome), (RunState::Finished, Some(Outcome::Incomplete)));
    assert_eq!(summary.reason, Some(Code::new("model.refusal")));
    assert_eq!(summary.finished_at, Some(Timestamp::from_millis(1_000)));
}

/// Spec: D4, D12. A run that is open again has no end.
#[tokio::test]
async fn reopened_run_has_no_end() {
    let reopened = RunReopened::new("ops", Some(Code::new("provider.timeout")));
    let summary = fold(vec![failed(), reopened.into()]).await;
    assert_eq!((summary.state, summary.outcome), (RunState::Running, None));
    assert_eq!((summary.reason, summary.finished_at, summary.reopens), (None, None, 1));
    assert_eq!(summary.last_failure.map(|last| last.seq), Some(2), "what failed is known");
}

/// Spec: D4, B2. Every attempt and every execution counts, lost ones and repeated ones too.
#[tokio::test]
async fn open_run_counts_what_it_used() {
    let mut attempted = ModelAttempted::new(1, 1, "script");
    attempted.usage = Some(TokenUsage::new(7, 5));
    let requested = ToolRequested::new("c1", "look", json!({}), 1);
    let again = ToolAttempted::new("c1", 1, "tool.execution_failed", "busy", 1);
    let recovered = RunRecovered::new(vec!["c1".into(), "c2".into()], Vec::new(), 1);
    let model = ModelRequested::new(1, "d", "t", 2);
    let kinds = vec![model.into(), attempted.into(), requested.into(), again.into()];
    let usage = fold(kinds.into_iter().chain([recovered.into()]).collect()).await.usage;
    assert_eq!((usage.model_calls, usage.model_attempts, usage.tool_calls), (1, 2, 4));
    assert_eq!((usage.input_tokens, usage.output_tokens, usage.total_tokens), (7, 5, 12));
    assert_eq!(usage.wall_ms, 5_000);
}

/// Spec: D4, O5
#[tokio::test]
async fn waiting_run_says_what_for() {
    let until = Timestamp::from_millis(60_000);
    let parked = EventKind::from(RunParked::new(until, "provider.rate_limited", "later"));
    let waits = |r#for| EventKind::from(RunWaiting::new(r#for, Vec::new()));
    let summary = fold(vec![parked, waits(WaitFor::Parked)]).await;
    assert_eq!((summary.state, summary.is_open()), (RunState::Parked, true));
    assert!(summary.parked.is_some());
    let summary = fold(vec![waits(WaitFor::Approval)]).await;
    assert_eq!((summary.state, summary.is_open()), (RunState::WaitingApproval, true));
    assert_eq!(summary.parked, None);
}
