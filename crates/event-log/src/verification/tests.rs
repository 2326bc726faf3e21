use std::sync::Arc;

use layer0::event::{
    Actor, HookAborted, ModelAttempted, OperatorReturned, RunFailed, RunForked, RunReopened,
    RunStarted, RunWaiting, SignalReceived, ToolProbed, Verdict, WaitFor, Warning,
};
use layer0::operator::Signal;
use layer0::stop::Outcome;
use layer0::usage::Usage;
use layer0::{Code, Timestamp};
use serde_json::json;

use super::*;
use crate::{Batch, Claim, Erasures, LastFailure, Log, MemoryLog, RunWriter, Seed};

fn started() -> EventKind {
    started_as(None)
}

/// Returns the first event of a run, which names it.
fn started_as(run: Option<&str>) -> EventKind {
    let started = json!({
        "run": run, "input": "hello", "session": "ses_1", "machine": 1,
        "agent": { "name": "demo", "digest": "d", "definition": {} },
    });
    serde_json::from_value::<RunStarted>(started).unwrap().into()
}

/// Spec: D13. Everything the row repeats of the record is compared.
#[tokio::test]
async fn a_changed_summary_is_found() {
    let log = Arc::new(MemoryLog::new());
    let run = RunId::from("run_1");
    let mut writer = RunWriter::new(Arc::clone(&log) as Arc<dyn EventLog>, run.clone());
    writer.stage(&Seed::new("test"), Timestamp::from_millis(5), Actor::Runtime, None, started());
    let attempted = json!({
        "call": 1, "attempt": 1, "provider": "p", "model": "m", "code": null, "status": null,
        "delay_ms": 0, "cost_nanousd": 5,
    });
    let attempted: ModelAttempted = serde_json::from_value(attempted).unwrap();
    writer.stage(
        &Seed::new("test"),
        Timestamp::from_millis(6),
        Actor::Runtime,
        None,
        attempted.into(),
    );
    writer.commit().await.unwrap();
    let sound = verify_run(&*log, &run).await.unwrap().summary;
    assert_eq!((sound.last_seq, sound.messages), (2, 1));
    assert!(sound.usage.cost_usd.is_some());
    type Edit = fn(&mut RunSummary);
    let edits: [(&str, Edit); 12] = [
        ("agent", |row| row.agent = "other".into()),
        ("dispatched_model_calls", |row| row.dispatched_model_calls = 1),
        ("errors", |row| row.errors = 1),
        ("finished_at", |row| row.finished_at = Some(row.started_at)),
        ("follows", |row| row.follows = Some("run_0".into())),
        ("last_failure", |row| {
            row.last_failure = Some(LastFailure { seq: 1, code: Code::new("tool.timeout") });
        }),
        ("messages", |row| row.messages = 0),
        ("more messages", |row| row.messages = 2),
        ("outcome", |row| row.outcome = Some(Outcome::Failed)),
        ("started_at", |row| row.started_at = Timestamp::from_millis(4)),
        ("usage", |row| row.usage.tool_calls += 1),
        ("cost", |row| row.usage.cost_usd = None),
    ];
    for (name, edit) in edits {
        let other = Arc::new(MemoryLog::new());
        let mut edited = sound.clone();
        edit(&mut edited);
        let records = log.records(&run, 1).await.unwrap();
        let batch = Batch::new(run.clone(), Claim::FIRST, records, edited);
        other.append(batch).await.unwrap();
        let found = verify_run(&*other, &run).await;
        assert!(matches!(found, Err(LogError::Tampered { seq: 2, .. })), "{name}: {found:?}");
    }
}

/// Spec: D4, D13. Rows of earlier versions did not count runs below and hooks that stop a run.
#[tokio::test]
async fn failures_below_count_and_earlier_rows_verify() {
    let log = Arc::new(MemoryLog::new());
    let run = RunId::from("run_1");
    let mut writer = RunWriter::new(Arc::clone(&log) as Arc<dyn EventLog>, run.clone());
    let code = || Some(Code::new("provider.timeout"));
    let returned =
        |outcome, code| OperatorReturned::new("a", "run_a", outcome, code, Usage::default()).into();
    let aborted = HookAborted::new("gate", "run_end", None, "hook.aborted", "no", false);
    let expected = [None, None, Some((3, "provider.timeout")), Some((4, "hook.aborted"))];
    let kinds: [EventKind; 4] = [
        started(),
        returned(Outcome::Completed, None),
        returned(Outcome::Failed, code()),
        aborted.into(),
    ];
    for (at, (kind, expected)) in (5..).zip(kinds.into_iter().zip(expected)) {
        let at = Timestamp::from_millis(at);
        writer.stage(&Seed::new("test"), at, Actor::Runtime, None, kind);
        let failure = writer.summary().last_failure.clone();
        let expected = expected.map(|(seq, code)| LastFailure::new(seq, Code::new(code)));
        assert_eq!(failure, expected);
    }
    writer.commit().await.unwrap();
    let records = log.records(&run, 1).await.unwrap();
    let mut earlier = verify_run(&*log, &run).await.unwrap().summary;
    earlier.last_failure = None;
    let other = MemoryLog::new();
    let batch = Batch::new(run.clone(), Claim::FIRST, records, earlier);
    other.append(batch).await.unwrap();
    assert!(verify_run(&other, &run).await.is_ok());
}

/// Spec: D7, D13. Rows of earlier versions have the start of the original.
#[tokio::test]
async fn copies_begin_when_they_were_made() {
    let log = Arc::new(MemoryLog::new());
    let mut original = RunWriter::new(Arc::clone(&log) as Arc<dyn EventLog>, "run_1".into());
    let at = Timestamp::from_millis(5);
    original.stage(&Seed::new("test"), at, Actor::Runtime, None, started());
    original.commit().await.unwrap();
    let run = RunId::from("run_2");
    let mut writer = RunWriter::new(Arc::clone(&log) as Arc<dyn EventLog>, run.clone());
    let forked = RunForked::new(run.clone(), "s", "run_1", 1);
    for (at, kind) in [(5, started()), (5_000, forked.into())] {
        let at = Timestamp::from_millis(at);
        writer.stage(&Seed::new("test"), at, Actor::Runtime, None, kind);
    }
    writer.commit().await.unwrap();
    let records = log.records(&run, 1).await.unwrap();
    let summary = verify_run(&*log, &run).await.unwrap().summary;
    assert_eq!((summary.started_at, summary.usage.wall_ms), (Timestamp::from_millis(5_000), 0));

    let mut earlier = summary.clone();
    (earlier.started_at, earlier.reopened) = (Timestamp::from_millis(5), None);
    earlier.usage.wall_ms = 4_995;
    let mut changed = summary;
    changed.started_at = Timestamp::from_millis(6);
    let (mut longer, mut reopened) = (earlier.clone(), earlier.clone());
    longer.usage.wall_ms = 9_000;
    reopened.reopened = Some((Timestamp::from_millis(5_000), 7));
    let rows = [(earlier, true), (changed, false), (longer, false), (reopened, false)];
    for (row, is_sound) in rows {
        let other = MemoryLog::new();
        let batch = Batch::new(run.clone(), Claim::FIRST, records.clone(), row).importing();
        other.append(batch).await.unwrap();
        assert_eq!(verify_run(&other, &run).await.is_ok(), is_sound);
    }
}

/// Spec: D1, D13. The first event says whether the run is keyed; its row says so only if that event was erased.
#[test]
fn first_event_says_whether_a_run_is_keyed() {
    let event = |seq: u64, kind: EventKind| {
        Event::new("run_1", seq, Timestamp::default(), Actor::Runtime, kind)
    };
    let opened = |key: Option<&str>| {
        let opened = json!({ "name": "n", "pattern": "p", "key_id": key });
        EventKind::decode("subscription.opened", &opened.to_string()).unwrap()
    };
    let keyed = |key: Option<&str>| {
        let EventKind::RunStarted(mut started) = started() else { panic!("it begins") };
        started.key_id = key.map(Into::into);
        EventKind::from(started)
    };
    for (events, row, expected) in [
        (vec![event(1, keyed(Some("k")))], None, true),
        (vec![event(1, keyed(None))], Some("k"), false),
        (vec![event(1, opened(Some("k")))], None, true),
        (vec![event(1, opened(None))], Some("k"), false),
        (vec![event(2, keyed(None))], Some("k"), true),
        (vec![event(2, keyed(Some("k")))], None, false),
        (Vec::new(), Some("k"), true),
    ] {
        let mut summary = RunSummary::new("run_1".into());
        summary.key_id = row.map(Into::into);
        assert_eq!(is_keyed(&events, &summary), expected, "{events:?} {row:?}");
    }
}

/// Spec: D13, X2. Rows of the first versions counted fewer parts.
#[tokio::test]
async fn row_of_a_first_version_counts_less() {
    for (machine, is_sound) in [(0, true), (1, false)] {
        let EventKind::RunStarted(mut started) = started() else { panic!("it begins") };
        started.machine = machine;
        let (log, run) = (Arc::new(MemoryLog::new()), RunId::from("run_1"));
        record(&log, &run, vec![(5, started.into())]).await;
        let mut row = verify_run(&*log, &run).await.unwrap().summary;
        (row.messages, row.dispatched_model_calls) = (9, 9);
        row.usage.cost_usd = Some(9.0);
        let other = MemoryLog::new();
        let records = log.records(&run, 1).await.unwrap();
        other.append(Batch::new(run.clone(), Claim::FIRST, records, row)).await.unwrap();
        assert_eq!(verify_run(&other, &run).await.is_ok(), is_sound, "{machine}");
    }
}

/// Stages and commits events with their times.
async fn record(log: &Arc<MemoryLog>, run: &RunId, kinds: Vec<(i64, EventKind)>) {
    let mut writer = RunWriter::new(Arc::clone(log) as Arc<dyn EventLog>, run.clone());
    for (at, kind) in kinds {
        let at = Timestamp::from_millis(at);
        writer.stage(&Seed::new("test"), at, Actor::Runtime, None, kind);
    }
    writer.commit().await.unwrap();
}

/// Spec: D7, D13, S12. A text may be erased from a copy, also the last one that it copied.
#[tokio::test]
async fn copy_without_its_last_text_verifies() {
    let warning = |text| EventKind::from(Warning::new(text));
    let forked = RunForked::new("run_2", "s", "run_1", 2);
    for erased in 1..=4 {
        let (log, run) = (Arc::new(MemoryLog::new()), RunId::from("run_2"));
        let kinds = vec![
            (5, started_as(Some("run_1"))),
            (50, warning("private")),
            (5_000, forked.clone().into()),
            (5_010, warning("later")),
        ];
        record(&log, &run, kinds).await;
        assert!(verify_run(&*log, &run).await.is_ok());
        log.erase(&run, erased).await.unwrap();
        let verified = verify_run(&*log, &run).await;
        assert_eq!(verified.unwrap().erased, [erased]);
    }
}

/// Spec: D13. The time of a run is known without its erased events.
#[tokio::test]
async fn changed_time_is_found_after_an_erasure() {
    for erased in [1, 2] {
        let (log, run) = (Arc::new(MemoryLog::new()), RunId::from("run_1"));
        let private = Warning::new("private").into();
        record(&log, &run, vec![(5, started()), (50, private)]).await;
        log.erase(&run, erased).await.unwrap();
        let mut row = verify_run(&*log, &run).await.unwrap().summary;
        row.usage.wall_ms += 1;
        let other = MemoryLog::new();
        let records = log.records(&run, 1).await.unwrap();
        other.append(Batch::new(run.clone(), Claim::FIRST, records, row)).await.unwrap();
        let found = verify_run(&other, &run).await;
        assert!(matches!(found, Err(LogError::Tampered { seq: 2, .. })), "{erased}: {found:?}");
    }
}

/// Spec: D12, D13. The usage at an erased end is unknown.
#[tokio::test]
async fn reopened_run_without_its_end_verifies() {
    let (log, run) = (Arc::new(MemoryLog::new()), RunId::from("run_1"));
    let mut usage = Usage::default();
    (usage.wall_ms, usage.tool_calls) = (7, 3);
    let failed = RunFailed::new("provider.timeout", vec!["private".into()], usage);
    let kinds = vec![
        (5, started()),
        (15, failed.into()),
        (4_000, RunReopened::new("ops", None).into()),
        (4_010, Warning::new("running").into()),
    ];
    record(&log, &run, kinds).await;
    log.erase(&run, 2).await.unwrap();
    let verified = verify_run(&*log, &run).await.unwrap();
    assert_eq!((verified.erased, verified.summary.usage.wall_ms), (vec![2], 17));
}

/// Spec: D13. A cancellation ends a wait, also after its text was erased.
#[tokio::test]
async fn cancelled_wait_without_its_signal_verifies() {
    let (log, run) = (Arc::new(MemoryLog::new()), RunId::from("run_1"));
    let kinds = vec![
        (5, started()),
        (15, RunWaiting::new(WaitFor::Approval, vec![]).into()),
        (25, SignalReceived::new(Signal::CANCEL, json!(null)).into()),
        (26, Warning::new("ending").into()),
    ];
    record(&log, &run, kinds).await;
    log.erase(&run, 3).await.unwrap();
    assert_eq!(verify_run(&*log, &run).await.unwrap().erased, [3]);
}

/// Spec: D5, D13. Rows of earlier versions counted the time until a late probe.
#[tokio::test]
async fn earlier_rows_with_late_probes_verify() {
    let (log, run) = (Arc::new(MemoryLog::new()), RunId::from("run_1"));
    let mut usage = Usage::default();
    usage.wall_ms = 10;
    let failed = RunFailed::new("provider.timeout", vec!["x".into()], usage);
    let probed = ToolProbed::new("c1", Verdict::Unknown, None);
    let kinds = vec![(5, started()), (15, failed.into()), (4_005, probed.into())];
    record(&log, &run, kinds).await;
    let row = verify_run(&*log, &run).await.unwrap().summary;
    assert_eq!(row.usage.wall_ms, 10);
    for (wall_ms, is_sound) in [(4_000, true), (3_999, false)] {
        let mut earlier = row.clone();
        earlier.usage.wall_ms = wall_ms;
        let other = MemoryLog::new();
        let records = log.records(&run, 1).await.unwrap();
        other.append(Batch::new(run.clone(), Claim::FIRST, records, earlier)).await.unwrap();
        assert_eq!(verify_run(&other, &run).await.is_ok(), is_sound, "{wall_ms}");
    }
}
