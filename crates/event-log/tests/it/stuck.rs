//! Runs that need attention.

use std::collections::BTreeMap;
use std::sync::Arc;

use backstop_event_log::{
    Decision, EventLog, LostRun, MemoryLog, RunState, RunWriter, Seed, StuckReason, UnattendedRuns,
    stuck_runs,
};
use layer0::Timestamp;
use layer0::event::{
    Actor, AgentRecord, ApprovalRequested, EventKind, Hash, LostTail, RunFailed, RunFinished,
    RunParked, RunStarted, RunWaiting, WaitFor,
};
use layer0::id::RunId;
use layer0::stop::Outcome;
use layer0::usage::Usage;
use serde_json::json;

use crate::recording::PlainLog;

const DAY: i64 = 24 * 60 * 60 * 1_000;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(1_767_225_600_000 + ms)
}

/// Records a run of its own.
async fn record(log: &Arc<dyn EventLog>, run: &str, kinds: Vec<EventKind>) {
    stage(log, run, RunStarted::new("hello", format!("ses_{run}").into(), agent()), kinds).await;
}

/// Records `run_below`, a child of `run_root`.
async fn record_child(log: &Arc<dyn EventLog>, kinds: Vec<EventKind>) {
    let mut started = RunStarted::new("hello", "ses_run_root".into(), agent());
    started.parent = Some("run_root".into());
    stage(log, "run_below", started, kinds).await;
}

fn agent() -> AgentRecord {
    AgentRecord::new("demo", "d", json!({"name": "demo"}))
}

async fn stage(log: &Arc<dyn EventLog>, run: &str, started: RunStarted, kinds: Vec<EventKind>) {
    let mut writer = RunWriter::new(Arc::clone(log), run.into());
    for kind in std::iter::once(started.into()).chain(kinds) {
        writer.stage(&Seed::new("test"), at(0), Actor::Runtime, None, kind);
    }
    writer.commit().await.unwrap();
}

/// Spec: D15, J2w
#[tokio::test]
async fn stranded_runs_are_listed_for_that_alone() {
    let log: Arc<dyn EventLog> = Arc::new(MemoryLog::new());
    let asked = ApprovalRequested::new("apr_1", "c1", "refund", json!({}), "h");
    let waits = RunWaiting::new(WaitFor::Approval, vec!["apr_1".into()]);
    record(&log, "run_asks", vec![asked.into(), waits.into()]).await;
    let parked = RunParked::new(at(3 * DAY), "provider.rate_limited", "later");
    record(&log, "run_parked", vec![parked.into()]).await;
    record(&log, "run_open", Vec::new()).await;
    let finished = RunFinished::new(Outcome::Completed, "done", Usage::default());
    record(&log, "run_over", vec![finished.into()]).await;
    let stuck = async |stranded: &[(&str, i64)]| {
        let stranded: BTreeMap<RunId, Timestamp> =
            stranded.iter().map(|(run, ms)| ((*run).into(), at(*ms))).collect();
        let unattended = UnattendedRuns::new(stranded, BTreeMap::new());
        let stuck = stuck_runs(&*log, &unattended, at(2 * DAY)).await.unwrap();
        let line = |it: backstop_event_log::StuckRun| (it.run.run.to_string(), it.why, it.since);
        stuck.into_iter().map(line).collect::<Vec<_>>()
    };
    let line = |run: &str, why, ms| (run.to_owned(), why, at(ms));
    assert_eq!(
        stuck(&[]).await,
        [
            line("run_asks", StuckReason::ApprovalWaits, 0),
            line("run_parked", StuckReason::Parked, 0)
        ]
    );
    assert_eq!(
        stuck(&[("run_open", 1), ("run_parked", 2), ("run_asks", 3), ("run_over", 4)]).await,
        [
            line("run_open", StuckReason::Stranded, 1),
            line("run_parked", StuckReason::Stranded, 2),
            line("run_asks", StuckReason::Stranded, 3)
        ]
    );
}

/// Spec: D4, D15
#[tokio::test]
async fn interrupted_trees_are_listed_by_their_root() {
    let log: Arc<dyn EventLog> = Arc::new(MemoryLog::new());
    record(&log, "run_root", Vec::new()).await;
    record_child(&log, Vec::new()).await;
    let died = ["run_root", "run_below", "run_that_is_gone"].map(|run| (run.into(), at(1)));
    let unattended = UnattendedRuns::new(BTreeMap::new(), died.into());
    let stuck = stuck_runs(&*log, &unattended, at(2)).await.unwrap();
    let listed: Vec<_> = stuck.iter().map(|it| (it.run.run.as_str(), it.why, it.since)).collect();
    assert_eq!(listed, [("run_root", StuckReason::Interrupted, at(1))]);
}

/// Spec: D15, A1. A decision that no process takes is listed, under the root of its tree.
#[tokio::test]
async fn decided_runs_without_a_process_are_listed() {
    let log: Arc<dyn EventLog> = Arc::new(MemoryLog::new());
    record(&log, "run_root", Vec::new()).await;
    let asked = ApprovalRequested::new("apr_1", "c1", "refund", json!({}), "h");
    let waits = RunWaiting::new(WaitFor::Approval, vec!["apr_1".into()]);
    record_child(&log, vec![asked.into(), waits.into()]).await;
    let listed = async |ms| {
        let stuck = stuck_runs(&*log, &UnattendedRuns::default(), at(ms)).await.unwrap();
        let line = |it: &backstop_event_log::StuckRun| (it.run.run.to_string(), it.why, it.since);
        stuck.iter().map(line).collect::<Vec<_>>()
    };
    assert!(listed(70_000).await.is_empty(), "it waits for a person");
    assert!(log.decide(&"apr_1".into(), Decision::approve("ops"), at(5)).await.unwrap());
    assert!(listed(60_005).await.is_empty(), "a process may take it");
    let decided = ("run_root".to_owned(), StuckReason::Decided, at(5));
    assert_eq!(listed(60_006).await, [decided]);
}

/// Spec: D15, A1, O5. A run is listed once it has waited for longer than its bound.
#[tokio::test]
async fn waits_are_listed_beyond_their_bounds() {
    const HOUR: i64 = 60 * 60 * 1_000;
    let log: Arc<dyn EventLog> = Arc::new(MemoryLog::new());
    let asked = |id: &str, expires_at: Option<i64>| {
        let mut asked = ApprovalRequested::new(id, "c1", "refund", json!({}), "h");
        asked.expires_at = expires_at.map(at);
        EventKind::from(asked)
    };
    record(&log, "run_asks", vec![asked("apr_1", None)]).await;
    record(&log, "run_expired", vec![asked("apr_2", Some(50)), asked("apr_3", Some(40))]).await;
    let parked = RunParked::new(at(3 * DAY), "provider.rate_limited", "later");
    record(&log, "run_parked", vec![parked.into()]).await;
    let crashed = RunFailed::new("run.crash_loop", vec!["again".into()], Usage::default());
    record(&log, "run_crashed", vec![crashed.into()]).await;
    let failed = RunFailed::new("provider.timeout", vec!["late".into()], Usage::default());
    record(&log, "run_failed", vec![failed.into()]).await;
    let listed = async |ms| {
        let stuck = stuck_runs(&*log, &UnattendedRuns::default(), at(ms)).await.unwrap();
        let line = |it: backstop_event_log::StuckRun| {
            format!("{} {} {}", it.run.run, it.why.as_str(), (it.since.since(at(0))).as_millis())
        };
        stuck.into_iter().map(line).collect::<Vec<_>>()
    };
    let crashed = "run_crashed crash_loop 0";
    assert_eq!(listed(39).await, [crashed]);
    assert_eq!(listed(40).await, [crashed, "run_expired approval_expired 40"]);
    assert_eq!(listed(HOUR).await, [crashed, "run_expired approval_expired 40"]);
    let parked = "run_parked parked 0";
    assert_eq!(listed(HOUR + 1).await, [parked, crashed, "run_expired approval_expired 40"]);
    assert_eq!(listed(DAY).await.len(), 3);
    let all = ["run_asks approval_waits 0", parked, crashed, "run_expired approval_expired 40"];
    assert_eq!(listed(DAY + 1).await, all);
}

#[test]
fn reasons_have_names() {
    use StuckReason::*;
    let reasons = [
        ApprovalExpired,
        ApprovalWaits,
        CrashLoop,
        Decided,
        Interrupted,
        LostTail,
        Parked,
        Stranded,
    ];
    let names = reasons.map(|reason| {
        assert_eq!(json!(reason), json!(reason.as_str()));
        reason.as_str()
    });
    assert!(names.is_sorted(), "{names:?}");
}

/// Spec: D15, J2. A run that has lost its tail is listed for that alone, also without a record.
#[tokio::test]
async fn lost_and_unreadable_runs_are_listed() {
    let lost = |run: &str, ms| LostRun::new(run.into(), LostTail::new(9, Hash([9; 32])), at(ms));
    let log = PlainLog {
        lost: vec![
            lost("run_asks", 3),
            lost("run_gone", 4),
            lost("run_parked", 5),
            lost("run_crashed", 6),
        ],
        unreadable: Some("run_broken".into()),
        ..PlainLog::default()
    };
    let log: Arc<dyn EventLog> = Arc::new(log);
    let asked = ApprovalRequested::new("apr_1", "c1", "refund", json!({}), "h");
    record(&log, "run_asks", vec![asked.into()]).await;
    let parked = RunParked::new(at(3 * DAY), "provider.rate_limited", "later");
    record(&log, "run_parked", vec![parked.into()]).await;
    let crashed = RunFailed::new("run.crash_loop", vec!["again".into()], Usage::default());
    record(&log, "run_crashed", vec![crashed.into()]).await;
    record(&log, "run_broken", Vec::new()).await;
    let died = BTreeMap::from([("run_broken".into(), at(2))]);
    let unattended = UnattendedRuns::new(BTreeMap::new(), died);
    let stuck = stuck_runs(&*log, &unattended, at(2 * DAY)).await.unwrap();
    let line = |it: &backstop_event_log::StuckRun| {
        let reason = it.run.reason.as_ref().map(ToString::to_string);
        (it.run.run.to_string(), it.why.as_str(), it.run.state, reason)
    };
    let lines: Vec<_> = stuck.iter().map(line).collect();
    let lost_tail = |run: &str, state, reason: Option<&str>| {
        (run.to_owned(), "lost_tail", state, reason.map(str::to_owned))
    };
    let expected = [
        ("run_broken".to_owned(), "interrupted", RunState::Unreadable, None),
        lost_tail("run_asks", RunState::Running, None),
        lost_tail("run_gone", RunState::Unreadable, Some("log.lost_tail")),
        lost_tail("run_parked", RunState::Parked, None),
        lost_tail("run_crashed", RunState::Failed, Some("run.crash_loop")),
    ];
    assert_eq!(lines, expected);
    assert_eq!((stuck[0].run.started_at, stuck[2].run.started_at), (at(2), at(4)));
}
