//! Records that are verified, decoded and printed.

use backstop_event_log::*;
use layer0::event::*;
use layer0::failure::Failure;
use serde_json::{Value, json};

use crate::recording::{PlainLog, memory, record, started};

/// Spec: D1, D7. A record names its run, and a copy is named anew.
#[tokio::test]
async fn record_of_another_run_is_found() {
    let named = |run: &str| {
        let mut start = started("s");
        start.run = Some(run.into());
        EventKind::from(start)
    };
    let forked = |run: &str| EventKind::from(RunForked::new(run, "s", "run_0", 1));
    for (kinds, found) in [
        (vec![named("run_1")], None),
        (vec![named("run_9")], Some(1)),
        (vec![named("run_0"), forked("run_1")], None),
        (vec![named("run_0"), forked("run_9")], Some(2)),
        (vec![named("run_0"), forked("run_9"), forked("run_1")], None),
        (vec![started("s").into()], None),
    ] {
        let log = memory();
        drop(record(&log, "run_1", kinds).await);
        let seq = match read_records(&*log, &"run_1".into()).await {
            Ok(_) => None,
            Err(LogError::Tampered { seq, .. }) => Some(seq),
            Err(other) => panic!("{other:?}"),
        };
        assert_eq!(seq, found);
    }
    // The name of the original is no name of a copy whose own was erased.
    let log = memory();
    drop(record(&log, "run_1", [named("run_0"), forked("run_1")]).await);
    log.erase(&"run_1".into(), 2).await.unwrap();
    assert!(read_records(&*log, &"run_1".into()).await.is_ok());
}

/// Spec: D1. A keyed record needs its key, also once its first event is erased.
#[tokio::test]
async fn keyed_record_needs_its_key() {
    let key = || LogKey::new("a key").unwrap();
    let log: std::sync::Arc<dyn EventLog> = std::sync::Arc::new(MemoryLog::new().with_key(key()));
    let mut start = started("s");
    start.key_id = Some(key().id().into());
    drop(record(&log, "run_1", [start.into(), Warning::new("x").into()]).await);
    for erased in [None, Some(1)] {
        if let Some(seq) = erased {
            log.erase(&"run_1".into(), seq).await.unwrap();
        }
        let summary = log.summary(&"run_1".into()).await.unwrap().unwrap();
        let records = log.records(&"run_1".into(), 1).await.unwrap();
        verify(&records, &summary, Some(&key())).unwrap();
        for other in [None, LogKey::new("another")] {
            let refused = verify(&records, &summary, other.as_ref());
            assert!(matches!(refused, Err(LogError::KeyMissing { .. })), "{refused:?}");
        }
    }
    let mut writer = RunWriter::new(memory(), "run_2".into());
    let mut start = started("s");
    start.key_id = Some("of another log".into());
    crate::recording::stage(&mut writer, 0, start);
    let refused = writer.commit().await.err();
    assert!(matches!(refused, Some(LogError::KeyMissing { .. })), "{refused:?}");
}

/// Spec: D2. A record is decoded with all of its envelope, or refused.
#[tokio::test]
async fn record_is_decoded_whole() {
    let log = memory();
    drop(record(&log, "run_1", [started("s").into(), Warning::new("x").into()]).await);
    let mut record = log.records(&"run_1".into(), 2).await.unwrap().remove(0);
    record.caused_by = Some(1);
    let event = record.decode(&"run_1".into()).unwrap();
    assert_eq!((event.run.as_str(), event.seq, event.caused_by), ("run_1", 2, Some(1)));
    assert_eq!((event.at, event.actor, event.schema), (record.at, Actor::Runtime, record.schema));
    assert_eq!((event.salt, event.hash), (record.payload.salt(), record.hash));
    assert_eq!(event.kind, Warning::new("x").into());
    let code = |record: &Record| record.decode(&"run_1".into()).unwrap_err().code();
    let mut other = record.clone();
    other.schema += 1;
    assert_eq!(code(&other), "log.schema_newer");
    other = record.clone();
    other.event_type = "warned".into();
    assert_eq!(code(&other), "log.unreadable");
    other = record.clone();
    other.payload = Payload::Erased(record.payload.digest().unwrap());
    assert_eq!(code(&other), "log.erased");
    assert_eq!((other.payload.text(), other.payload.salt()), (None, None));
    let mut envelope: Value =
        serde_json::from_str(&other.envelope(&"run_1".into()).unwrap()).unwrap();
    assert_eq!(envelope["data"], json!({ "erased": other.payload.digest() }));
    envelope = serde_json::from_str(&record.envelope(&"run_1".into()).unwrap()).unwrap();
    assert_eq!(
        (&envelope["data"], &envelope["type"]),
        (&json!({ "message": "x" }), &json!("warning"))
    );
    assert_eq!((&envelope["run"], &envelope["caused_by"]), (&json!("run_1"), &json!(1)));
    assert_eq!(Payload::Plain("{}".into()).digest(), None, "the chain covers its text");
}

/// Spec: D8. A reader is not disturbed by what is appended meanwhile.
#[tokio::test]
async fn newer_records_than_the_head_are_dropped() {
    let log = memory();
    let mut writer = record(&log, "run_1", [started("s").into()]).await;
    let (summary, records) = read_records(&*log, &"run_1".into()).await.unwrap();
    assert_eq!((summary.last_seq, records.len()), (1, 1));
    crate::recording::stage(&mut writer, 1, Warning::new("x"));
    writer.commit().await.unwrap();
    let all = log.records(&"run_1".into(), 1).await.unwrap();
    assert!(matches!(verify(&all, &summary, None), Err(LogError::Tampered { .. })));
    assert!(verify_run(&*log, &"run_1".into()).await.unwrap().unchecked.is_empty());
}

/// Spec: D1, D13. Who keeps the key can tell that a row or an erasure was made without it.
#[tokio::test]
async fn seals_of_a_keyed_run_are_checked() {
    let key = || LogKey::new("a key").unwrap();
    let verified = async |row: RowSeal, is_keyed: bool| {
        let seals = Some((key(), RunSeals::new(row, <_>::default())));
        let log: std::sync::Arc<dyn EventLog> =
            std::sync::Arc::new(PlainLog { seals, ..PlainLog::default() });
        let mut start = started("s");
        start.key_id = is_keyed.then(|| key().id().into());
        drop(record(&log, "run_1", [start.into()]).await);
        verify_run(&*log, &"run_1".into()).await.map(|verified| verified.unchecked.row)
    };
    assert!(!verified(RowSeal::Sound, true).await.unwrap());
    assert!(verified(RowSeal::Absent, true).await.unwrap(), "an older version wrote the row");
    assert!(matches!(
        verified(RowSeal::Broken, true).await,
        Err(LogError::Tampered { seq: 1, .. })
    ));
    assert!(!verified(RowSeal::Broken, false).await.unwrap(), "the run is not keyed");
    let unchecked = |row, erasures: &[u64]| {
        let mut unchecked = UncheckedParts::default();
        (unchecked.row, unchecked.erasures) = (row, erasures.to_vec());
        unchecked.is_empty()
    };
    assert_eq!(
        [unchecked(false, &[]), unchecked(true, &[]), unchecked(false, &[1])],
        [true, false, false]
    );
}
