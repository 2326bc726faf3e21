use super::*;
use crate::{Log, MemoryLog, read_events, verify};
use layer0::event::{SignalReceived, Warning};
use layer0::failure::Failure;
use serde_json::Value;

async fn written(count: u64) -> (Arc<MemoryLog>, RunId, Vec<Record>, RunSummary) {
    let log = Arc::new(MemoryLog::new());
    let run = RunId::from("run_1");
    let mut writer = RunWriter::new(Arc::clone(&log) as Arc<dyn EventLog>, run.clone());
    for number in 1..=count {
        let kind = Warning::new(format!("number {number}")).into();
        writer.stage(&Seed::new("s"), Timestamp::from_millis(1), Actor::Runtime, None, kind);
        writer.commit().await.unwrap();
    }
    let records = log.records(&run, 1).await.unwrap();
    let summary = writer.summary().clone();
    (log, run, records, summary)
}

/// Creates a payload with the salt of a seq.
fn payload(seq: u64, text: &str) -> Payload {
    Payload::Salted(Seed::new("s").salt(seq + 1), text.to_owned())
}

/// Spec: D1
#[tokio::test]
async fn tampering_is_found_at_its_seq() {
    let (_, _, records, kept) = written(5).await;
    verify(&records, &kept, None).unwrap();
    let found = |change: &dyn Fn(&mut Vec<Record>)| {
        let mut changed = records.clone();
        change(&mut changed);
        match verify(&changed, &kept, None) {
            Err(LogError::Tampered { seq, .. }) => seq,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(found(&|records| records[2].payload = payload(2, "{}")), 3);
    assert_eq!(found(&|records| records[2].payload = payload(1, "number 3")), 3);
    let plain = |record: &Record| Payload::Plain(record.payload.text().unwrap().to_owned());
    assert_eq!(found(&|records| records[2].payload = plain(&records[2])), 3);
    assert_eq!(found(&|records| records[4].payload = Payload::Erased(Hash([0; 32]))), 5);
    assert_eq!(found(&|records| records[2].event_type = "memory.wrote".into()), 3);
    assert_eq!(found(&|records| records[2].schema = 0), 3);
    assert_eq!(found(&|records| records[1].actor = Actor::Model), 2);
    assert_eq!(found(&|records| records[3].at = Timestamp::from_millis(2)), 4);
    assert_eq!(found(&|records| records[0].caused_by = Some(1)), 1);
    assert_eq!(found(&|records| drop(records.remove(1))), 2);
    assert_eq!(found(&|records| records.swap(1, 2)), 2);
    assert_eq!(found(&|records| drop(records.pop())), 5);
    assert_eq!(found(&Vec::clear), 1);
}

/// Spec: D1. A row that is sound in itself, from a history that went another way.
#[tokio::test]
async fn a_row_of_another_history_is_found() {
    let history = |first: &'static str| async move {
        let log = Arc::new(MemoryLog::new());
        let mut writer = RunWriter::new(Arc::clone(&log) as Arc<dyn EventLog>, "run_1".into());
        for message in [first, "same", "same"] {
            let kind = Warning::new(message).into();
            writer.stage(&Seed::new("s"), Timestamp::default(), Actor::Runtime, None, kind);
        }
        writer.commit().await.unwrap();
        (log.records(&"run_1".into(), 1).await.unwrap(), writer.summary().clone())
    };
    let ((mut one, kept), (other, _)) = (history("this way").await, history("that way").await);
    assert_eq!((&one[1].payload, one[1].at), (&other[1].payload, other[1].at));
    assert_ne!(one[1].hash, other[1].hash, "the same event after another past is another link");
    one[0] = other[0].clone();
    assert!(matches!(verify(&one, &kept, None), Err(LogError::Tampered { seq: 2, .. })));
}

/// Spec: D8
#[tokio::test]
async fn a_second_writer_is_refused() {
    let (log, run, _, _) = written(2).await;
    let mut stale = RunWriter::new(log, run);
    stale.stage(
        &Seed::new("s"),
        Timestamp::default(),
        Actor::Runtime,
        None,
        Warning::new("mine").into(),
    );
    assert!(matches!(stale.commit().await, Err(LogError::Conflict { seq: 1, .. })));
}

/// Spec: D2. What could not be read back is not written, and nothing of its append is.
#[tokio::test]
async fn what_no_reader_follows_is_not_written() {
    let signal = |levels: u32| {
        let data = (0..levels).fold(Value::Null, |inner, _| Value::Array(vec![inner]));
        EventKind::from(SignalReceived::new("any", data))
    };
    for (levels, readable) in [(3, true), (100, true), (126, true), (127, false), (900, false)] {
        let (log, run, _, _) = written(2).await;
        let (summary, _) = read_events(&*log, &run).await.unwrap();
        let claim = log.claim(&run).await.unwrap();
        let mut writer = RunWriter::resume(Arc::clone(&log) as Arc<dyn EventLog>, summary, claim);
        let at = Timestamp::default();
        let before = Warning::new("before");
        writer.stage(&Seed::new("s"), at, Actor::Runtime, None, before.into());
        writer.stage(&Seed::new("s"), at, Actor::Person, None, signal(levels));
        let refused = writer.commit().await.err();
        assert_eq!(refused.is_none(), readable, "{levels}");
        let (_, events) = read_events(&*log, &run).await.unwrap();
        assert_eq!(events.len(), if readable { 4 } else { 2 });
        if let Some(error) = refused {
            assert_eq!(error.code(), "log.unreadable");
            let chain = layer0::failure::chain(&error);
            assert!(chain.concat().contains("recursion limit"), "{chain:?}");
        }
    }
}

/// Spec: D2. A readable event after one that is not does not hide it.
#[tokio::test]
async fn unreadable_event_refuses_those_after_it() {
    let (log, run, records, kept) = written(2).await;
    let claim = log.claim(&run).await.unwrap();
    let mut writer = RunWriter::resume(Arc::clone(&log) as Arc<dyn EventLog>, kept, claim);
    for levels in [900, 100] {
        let data = (0..levels).fold(Value::Null, |inner, _| Value::Array(vec![inner]));
        let signal = SignalReceived::new("any", data);
        let at = Timestamp::default();
        writer.stage(&Seed::new("s"), at, Actor::Person, None, signal.into());
    }
    assert!(matches!(writer.commit().await, Err(LogError::Unreadable { seq: 3, .. })));
    assert_eq!(log.records(&run, 1).await.unwrap(), records);
}

/// Spec: D2. A long text is written as it is, and so is the next one.
#[tokio::test]
async fn long_texts_are_written_whole() {
    let log = Arc::new(MemoryLog::new());
    let mut writer = RunWriter::new(Arc::clone(&log) as Arc<dyn EventLog>, "run_1".into());
    let texts = [10, 495, 2_000, 20].map(|length| "x".repeat(length));
    for text in &texts {
        let kind = Warning::new(text.as_str()).into();
        writer.stage(&Seed::new("s"), Timestamp::default(), Actor::Runtime, None, kind);
    }
    writer.commit().await.unwrap();
    let (_, events) = read_events(&*log, &"run_1".into()).await.unwrap();
    let kinds: Vec<EventKind> = events.into_iter().map(|event| event.kind).collect();
    let expected = texts.map(|text| EventKind::from(Warning::new(text)));
    assert_eq!(kinds, expected);
}

/// Spec: D7. The records of another store are appended as they are.
#[tokio::test]
async fn copied_records_are_appended() {
    let (log, run, records, kept) = written(2).await;
    let (_, events) = read_events(&*log, &run).await.unwrap();
    let other = Arc::new(MemoryLog::new());
    let to = || Arc::clone(&other) as Arc<dyn EventLog>;
    let mut writer = RunWriter::copy(to(), run.clone(), &events, records.clone());
    assert!(writer.batch.is_import);
    assert_eq!(writer.commit().await.unwrap().count(), 0);
    assert_eq!(other.records(&run, 1).await.unwrap(), records);
    assert_eq!(other.summary(&run).await.unwrap(), Some(kept));
    for (is_elsewhere, is_import) in [(false, false), (true, true)] {
        let mut writer = RunWriter::copy(to(), "run_2".into(), &events, records.clone());
        if is_elsewhere {
            writer = writer.from_elsewhere();
        }
        let at = Timestamp::default();
        let kind = Warning::new("added").into();
        writer.stage(&Seed::new("s"), at, Actor::Runtime, None, kind);
        assert_eq!(writer.batch.is_import, is_import);
    }
}

#[tokio::test]
async fn events_without_a_log_are_not_sealed() {
    let mut writer = RunWriter::without_log("run_1".into());
    for message in ["one", "two"] {
        let kind = Warning::new(message).into();
        writer.stage(&Seed::new("s"), Timestamp::default(), Actor::Runtime, None, kind);
    }
    let events: Vec<Event> = writer.commit().await.unwrap().collect();
    assert_eq!(events.iter().map(|event| event.seq).collect::<Vec<_>>(), [1, 2]);
    assert!(events.iter().all(|event| event.hash == Hash::default()));
    assert_eq!(writer.commit().await.unwrap().count(), 0);
}

/// Spec: D8
#[tokio::test]
async fn a_closed_writer_refuses_every_append() {
    let (log, run, records, kept) = written(2).await;
    let mut over = RunWriter::new_closed(kept);
    assert_eq!(over.commit().await.unwrap().count(), 0, "nothing is staged");
    let at = Timestamp::default();
    over.stage(&Seed::new("s"), at, Actor::Runtime, None, Warning::new("mine").into());
    assert!(matches!(over.commit().await, Err(LogError::WriterClosed(_))));
    assert_eq!(log.records(&run, 1).await.unwrap(), records);
}

/// Spec: D2
#[tokio::test]
async fn a_refused_append_closes_its_writer() {
    let (log, run, records, kept) = written(2).await;
    let claim = log.claim(&run).await.unwrap();
    let mut writer = RunWriter::resume(Arc::clone(&log) as Arc<dyn EventLog>, kept, claim);
    let deep = (0..900).fold(Value::Null, |inner, _| Value::Array(vec![inner]));
    let at = Timestamp::default();
    let signal = SignalReceived::new("any", deep);
    writer.stage(&Seed::new("s"), at, Actor::Person, None, signal.into());
    assert!(matches!(writer.commit().await, Err(LogError::Unreadable { .. })));
    writer.stage(&Seed::new("s"), at, Actor::Runtime, None, Warning::new("later").into());
    assert!(matches!(writer.commit().await, Err(LogError::WriterClosed(_))));
    assert_eq!(log.records(&run, 1).await.unwrap(), records, "nothing of it is appended");
}

#[tokio::test]
async fn a_run_is_read_back_verified() {
    let (log, run, _, kept) = written(3).await;
    let (summary, events) = read_events(&*log, &run).await.unwrap();
    assert_eq!((summary.last_seq, summary.head, events.len()), (3, kept.head, 3));
    let missing = read_events(&*log, &"run_2".into()).await;
    assert!(matches!(missing, Err(LogError::NotFound(_))));
}
