//! Appends, and what a log reads from them.

use std::collections::BTreeMap;
use std::sync::Arc;

use backstop_event_log::*;
use layer0::event::*;
use layer0::failure::{Effect, Failure};
use layer0::id::RunId;
use layer0::usage::Usage;
use serde_json::json;

use crate::recording::{PlainLog, agent, at, memory, record, stage, started};

/// Returns the batch of a run's events from this seq on.
async fn batch(kinds: Vec<EventKind>, from: u64) -> Batch {
    let log = memory();
    let writer = record(&log, "run_1", kinds).await;
    let records = log.records(&"run_1".into(), from).await.unwrap();
    Batch::new("run_1".into(), Claim::FIRST, records, writer.summary().clone())
}

/// Spec: D7
#[tokio::test]
async fn copy_names_its_original() {
    let forked = || EventKind::from(RunForked::new("run_1", "s", "run_0", 4));
    let copied = batch(vec![started("s").into(), forked()], 1).await;
    assert_eq!(copied.forked_from().unwrap().map(|fork| fork.parent), Some("run_0".into()));
    assert_eq!(copied.clone().importing().forked_from().unwrap(), None, "of another store");
    let later = batch(vec![started("s").into(), forked()], 2).await;
    assert_eq!(later.forked_from().unwrap(), None, "it began before");
    let new = batch(vec![started("s").into()], 1).await;
    assert_eq!(new.forked_from().unwrap(), None);
    let mut erased = copied.clone();
    erased.records[1].payload = Payload::Erased(Hash::default());
    assert_eq!(erased.forked_from().unwrap(), None);
    let mut broken = copied;
    broken.records[1].payload = Payload::Plain("{".into());
    assert!(matches!(broken.forked_from(), Err(LogError::Unreadable { seq: 2, .. })));
}

/// Spec: D12, D7, J2
#[tokio::test]
async fn batch_says_what_it_does() {
    let reopened = || EventKind::from(RunReopened::new("ops", None));
    let failed = || EventKind::from(RunFailed::new("a.b", vec!["m".into()], Usage::default()));
    let whole = batch(vec![started("s").into(), failed(), reopened()], 1).await;
    assert!(!whole.reopens() && whole.begins() && whole.first_seq() == 1);
    assert!(!whole.clone().importing().begins());
    let later = batch(vec![started("s").into(), failed(), reopened()], 3).await;
    assert!(later.reopens() && !later.begins() && later.first_seq() == 3);
    let mut child = later.clone();
    child.summary.parent = Some("run_0".into());
    assert!(!child.reopens(), "its root is reopened");
    let empty = batch(vec![started("s").into()], 2).await;
    assert_eq!((empty.records.len(), empty.first_seq()), (0, 2));
    assert!(!empty.reopens() && !empty.begins());

    let lost = LostTail::new(9, Hash::default());
    let mut accepted = RunReopened::new("ops", None);
    accepted.lost_tail = Some(lost);
    for (kind, adopts, accepts) in [
        (EventKind::from(RunResumed::new("ops")), false, false),
        (RunResumed::new("ops").adopting(agent()).into(), true, false),
        (RunResumed::new("ops").accepting(lost).into(), false, true),
        (accepted.into(), false, true),
        (reopened(), false, false),
        (Warning::new(r#"{"agent":{"lost_tail":{"#).into(), false, false),
    ] {
        let batch = batch(vec![started("s").into(), kind.clone()], 2).await;
        assert_eq!((batch.adopts(), batch.accepts_loss()), (adopts, accepts), "{kind:?}");
    }
}

/// Spec: A1, D7. A copy asks anew, and what cannot be read is not appended.
#[tokio::test]
async fn changes_of_approvals_are_read_from_a_batch() {
    let asked = |id: &str, call: &str| {
        EventKind::from(ApprovalRequested::new(id, call, "pay", json!({}), "h"))
    };
    let refusal = |call: &str, code: &'static str| {
        EventKind::from(ToolResponded::refusal(call.into(), "pay".into(), code, "no"))
    };
    let kinds = vec![
        started("s").into(),
        asked("apr_1", "c1"),
        ApprovalGranted::new("apr_1", "c1", "ops").into(),
        ApprovalDenied::new("apr_2", "c2", "ops", "approval.denied").into(),
        ApprovalDenied::new("apr_3", "c3", "backstop", "approval.expired").into(),
        refusal("c4", "tool.approval_denied"),
        refusal("c5", "tool.interrupted"),
        refusal("c6", "tool.timeout"),
        ToolResponded::success("c7", "pay", json!("paid"), 1).into(),
        RunFailed::new("a.b", vec!["m".into()], Usage::default()).into(),
    ];
    let words = |batch: &Batch| -> Vec<String> {
        let changes = batch.approval_changes().map(|change| match change.unwrap() {
            ApprovalChange::Asked(open) => format!("asked {} {} {}", open.id, open.seq, open.run),
            ApprovalChange::Closed(call) => format!("closed {call}"),
            ApprovalChange::Expired(id) => format!("expired {id}"),
            ApprovalChange::AllClosed => "all closed".to_owned(),
        });
        changes.collect()
    };
    let mut batch = batch(kinds, 1).await;
    let closed = ["closed c1", "closed c2", "expired apr_3", "closed c4", "closed c5"];
    let expected = [&["asked apr_1 2 run_1"], &closed[..], &["all closed"]].concat();
    assert_eq!(words(&batch), expected);
    batch.records[4].event_type = "run.forked".into();
    assert_eq!(
        words(&batch),
        ["closed c4", "closed c5", "all closed"],
        "those before are not its own"
    );
    batch.records[5].payload = Payload::Plain("{tool.interrupted".into());
    let refused = batch.approval_changes().find_map(Result::err);
    assert!(matches!(refused, Some(LogError::Unreadable { seq: 6, .. })), "{refused:?}");
}

/// Spec: D1, D13. Only erasures that had an HMAC get one.
#[tokio::test]
async fn import_seals_sealed_erasures() {
    let key = LogKey::new("a key").unwrap();
    let warning = |text| EventKind::from(Warning::new(text));
    let mut batch = batch(vec![warning("a"), warning("b"), warning("c")], 1).await;
    for place in [0, 2] {
        batch.records[place].payload = Payload::Erased(Hash([7; 32]));
    }
    assert_eq!(batch.erasure_seals(&key), []);
    let batch = batch.with_sealed_erasures(vec![2, 3]);
    let seal = key.seal_erasure(&"run_1".into(), 3, &batch.records[2].hash, &Hash([7; 32]));
    assert_eq!(batch.erasure_seals(&key), [(3, seal)]);
}

/// Spec: D8, D13. The defaults are those of a log that keeps nothing else.
#[tokio::test]
async fn plain_log_keeps_its_events_alone() {
    let log: Arc<dyn EventLog> = Arc::new(PlainLog::default());
    let run = RunId::from("run_1");
    let asked = ApprovalRequested::new("apr_1", "c1", "pay", json!({}), "h");
    drop(record(&log, "run_1", [started("s").into(), asked.into()]).await);
    let (claim, lost) = log.claim_with_loss(&run).await.unwrap();
    assert!(claim.epoch() > Claim::FIRST && lost.is_none() && claim.lease().is_none());
    assert!(log.lease().is_none() && !log.seals_rows());
    let seals = RunSeals::new(RowSeal::Sound, BTreeMap::new());
    let sealing =
        PlainLog { seals: LogKey::new("k").map(|key| (key, seals)), ..PlainLog::default() };
    assert!((&sealing as &dyn EventLog).seals_rows());
    let memory = memory();
    assert!(memory.key().is_none() && memory.seals(&run).await.unwrap().is_none());
    assert_eq!(memory.lost_tails().await.unwrap(), []);
    assert_eq!(log.kept_summary(&run).await.unwrap(), log.summary(&run).await.unwrap());
    assert!(log.kept_summary(&run).await.unwrap().is_some());
    assert_eq!(log.erasures().await.unwrap(), None);
    assert_eq!(log.transcript(&run).await.unwrap(), []);
    log.keep_transcript(Vec::new(), 0).await.unwrap();
    let missing = [
        log.read_feed(&EventFilter::new(), &Cursor::start()).await.unwrap_err(),
        log.subscription("tell").await.unwrap_err(),
        log.subscriptions().await.unwrap_err(),
    ];
    assert!(missing.iter().all(|error| error.code() == "store.failed"), "{missing:?}");
    let refused = log.erase(&run, 1).await.unwrap_err();
    assert_eq!(refused.to_string(), "event 1 cannot be erased: this log cannot erase");
    let decision = Decision::approve("ops");
    assert!(log.decide(&"apr_1".into(), decision.clone(), at(0)).await.unwrap());
    assert!(!log.decide(&"apr_1".into(), decision, at(0)).await.unwrap(), "it is decided");
    assert_eq!(&*log.inbox(&run).await.unwrap()[0].by, "ops");
}

/// Spec: D4, R8
#[tokio::test]
async fn failed_attempts_are_counted_by_day() {
    const DAY: i64 = 24 * 60 * 60 * 1_000;
    let log = memory();
    let attempt = |provider: &str, code: Option<&'static str>| {
        let mut attempted = ModelAttempted::new(1, 1, provider);
        attempted.code = code.map(Into::into);
        EventKind::from(attempted)
    };
    for run in ["run_1", "run_2"] {
        let mut writer = record(&log, run, [started(run).into()]).await;
        stage(&mut writer, 1, attempt("p", Some("provider.timeout")));
        stage(&mut writer, 2, attempt("p", None));
        stage(&mut writer, DAY, attempt("p", Some("provider.timeout")));
        stage(&mut writer, DAY + 1, attempt("p", Some("provider.timeout")));
        stage(&mut writer, DAY + 2, attempt("o", Some("provider.quota_exhausted")));
        writer.commit().await.unwrap();
    }
    let counts = async |filter| {
        let counts = log.failed_attempts(filter).await.unwrap();
        let row = |it: &FailedAttempts| {
            (it.day.as_millis() / DAY, it.provider.to_string(), it.code.to_string(), it.attempts)
        };
        counts.iter().map(row).collect::<Vec<_>>()
    };
    let row = |day, provider: &str, code: &str, count| {
        (day, provider.to_owned(), format!("provider.{code}"), count)
    };
    let all =
        [row(0, "p", "timeout", 2), row(1, "o", "quota_exhausted", 2), row(1, "p", "timeout", 4)];
    assert_eq!(counts(AttemptFilter::new()).await, all);
    let one = AttemptFilter::new().runs(["run_1"]).code("provider.timeout").from(at(DAY));
    assert_eq!(counts(one).await, [row(1, "p", "timeout", 2)]);
}

/// Spec: E7. What a person can do about a failure of the log.
#[test]
fn failures_of_a_log_carry_hints() {
    let hint = |error: LogError| Failure::hint(&error).map(|hint| hint.to_string());
    let cursor = Cursor::behind(7, None);
    for (error, begin) in [
        (LogError::ForeignCursor(cursor), "the store is another one"),
        (LogError::Forgetting("s".into()), "try again in a moment"),
        (LogError::NotFound("run_1".into()), "list the runs"),
        (LogError::StoreLost("a.db".into()), LogError::STORE_LOST_HINT),
        (LogError::Lost("run_1".into()), "it was deleted"),
        (LogError::lost_tail("run_1".into(), 4), "restore the store"),
        (LogError::TooLarge("long".into()), "give it a shorter name"),
    ] {
        let shown = error.to_string();
        let hint = hint(error).unwrap_or_else(|| panic!("{shown} has no hint"));
        assert!(hint.starts_with(begin), "{hint}");
    }
    assert_eq!(hint(LogError::Closed), None);
    let retryable =
        [LogError::Claimed("run_1".into()), LogError::Closed].map(|it| it.is_retryable());
    assert_eq!(retryable, [true, false]);
    assert_eq!(LogError::Closed.effect(), Effect::None);
}
