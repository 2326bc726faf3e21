use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::vec::Drain;

use layer0::Timestamp;
use layer0::event::{Actor, Event, EventKind, Hash};
use layer0::id::RunId;

use crate::chain::{key_id_in, key_named};
use crate::record::Payload;
use crate::{Batch, Claim, EventLog, Lease, LogError, LogKey, Moves, Record, RunSummary, Seed};

/// Depth of nesting below which every version can read a payload.
const SURELY_READ: usize = 64;
/// Capacity kept for the text of the next payload; most payloads fit.
const KEPT_BYTES: usize = 512;

/// The only writer of a run: numbers, seals and appends events.
pub struct RunWriter {
    /// Without a log no event is sealed: no reader could check the chain later.
    log: Option<Arc<dyn EventLog>>,
    /// The right to write, held as long as the writer; `None` without a log.
    claim: Option<Claim>,
    /// The content of the next append.
    batch: Batch,
    events: Vec<Event>,
    /// Buffer for the text of a payload, from which the record takes a copy of just its size, or a long text itself.
    text: Vec<u8>,
    /// Error if the staged events must not be appended, because one of them could not be read back.
    refused: Option<LogError>,
    /// Whether every append is refused: there is no right to write, or an append failed and the chain is ahead of the
    /// log's.
    is_closed: bool,
    /// Whether the run is a copy of a run from another store.
    is_from_elsewhere: bool,
}

impl RunWriter {
    /// Starts and claims a new run.
    #[must_use]
    pub fn new(log: Arc<dyn EventLog>, run: RunId) -> Self {
        let claim = log.claim_new(&run);
        Self::under(claim, log, RunSummary::new(run))
    }

    /// Starts a new run without a log. Its events are numbered, and their hashes are zero.
    #[must_use]
    pub fn without_log(run: RunId) -> Self {
        Self {
            log: None,
            claim: None,
            batch: Batch::new(run.clone(), 0, Vec::new(), RunSummary::new(run)),
            events: Vec::new(),
            text: Vec::new(),
            refused: None,
            is_closed: false,
            is_from_elsewhere: false,
        }
    }

    /// Creates the writer of a run that has ended and was not claimed. It refuses every append, so that no action that
    /// must be recorded first can happen for the run.
    #[must_use]
    pub fn new_closed(summary: RunSummary) -> Self {
        let batch = Batch::new(summary.run.clone(), 0, Vec::new(), summary.clone());
        Self { batch, is_closed: true, ..Self::without_log(summary.run) }
    }

    /// Resumes a run of the log, under a claim.
    #[must_use]
    pub fn resume(log: Arc<dyn EventLog>, summary: RunSummary, claim: Claim) -> Self {
        Self::under(claim, log, summary)
    }

    fn under(claim: Claim, log: Arc<dyn EventLog>, summary: RunSummary) -> Self {
        let run = summary.run.clone();
        let batch = Batch::new(run.clone(), claim.epoch(), Vec::new(), summary);
        Self { log: Some(log), claim: Some(claim), batch, ..Self::without_log(run) }
    }

    /// Starts a run with the records of another run, whose hashes stay valid. If no event is staged, this is an import
    /// of the run itself from another store.
    #[must_use]
    pub fn copy(
        log: Arc<dyn EventLog>,
        run: RunId,
        events: &[Event],
        records: Vec<Record>,
    ) -> Self {
        let mut writer = Self::new(log, run);
        events.iter().for_each(|event| writer.batch.summary.apply(event));
        writer.batch.records = records;
        writer.batch.is_import = true;
        writer
    }

    /// Marks the run as the copy of a run from another store, which need not be in this one.
    #[must_use]
    pub const fn from_elsewhere(mut self) -> Self {
        self.is_from_elsewhere = true;
        self
    }

    /// Returns the run's summary, including staged events.
    #[must_use]
    pub const fn summary(&self) -> &RunSummary {
        &self.batch.summary
    }

    /// Returns whether it refuses every append.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Returns the lease of its claim, if there is one: once it has ended, no action may start for the run.
    #[must_use]
    pub fn lease(&self) -> Option<&Arc<dyn Lease>> {
        self.claim.as_ref()?.lease()
    }

    /// Stages an event for the next [`RunWriter::commit`]; its salt is derived from `seed`. A run whose first event
    /// names the key of the log is sealed with that key.
    pub fn stage(
        &mut self,
        seed: &Seed,
        at: Timestamp,
        actor: Actor,
        caused_by: Option<u64>,
        kind: EventKind,
    ) {
        let (run, seq) = (self.batch.run.clone(), self.batch.summary.last_seq + 1);
        let mut event = Event::new(run, seq, at, actor, kind);
        event.caused_by = caused_by;
        if let Some(log) = &self.log {
            let (is_first, summary) = (event.seq == 1, &self.batch.summary);
            // A run of the first layout keeps its layout.
            event.salt = (is_first || summary.salted).then(|| seed.salt(event.seq));
            let id = if is_first { key_id_in(&event.kind) } else { summary.key_id.as_deref() };
            match key_named(id, log.key()) {
                Ok(key) => {
                    let record = seal_event(&event, &summary.head, key, &mut self.text);
                    event.hash = record.hash;
                    if self.refused.is_none() && record.payload.text().is_some_and(is_deep) {
                        self.refused = record.decode(&event.run).err();
                    }
                    self.batch.records.push(record);
                }
                Err(missing) => self.refused = Some(missing),
            }
        }
        // An event that a copy adds makes it a run of this log.
        self.batch.is_import &= self.is_from_elsewhere;
        self.batch.summary.apply(&event);
        self.events.push(event);
    }

    /// Removes a row from the inbox with the next [`RunWriter::commit`].
    pub fn take(&mut self, id: u64) {
        self.batch.taken.push(id);
    }

    /// Moves a subscription with the next [`RunWriter::commit`].
    pub fn move_subscription(&mut self, moves: Moves) {
        self.batch.moves = Some(Box::new(moves));
    }

    /// Moves a subscription now, without an event. Nothing may be staged.
    ///
    /// # Errors
    ///
    /// As [`RunWriter::commit`].
    ///
    /// # Cancel safety
    ///
    /// As [`RunWriter::commit`].
    pub async fn move_subscription_alone(&mut self, moves: Moves) -> Result<(), LogError> {
        self.move_subscription(moves);
        self.append().await
    }

    /// Appends the staged events in one write, and returns them.
    ///
    /// # Errors
    ///
    /// As [`EventLog::append`], [`LogError::Unreadable`] for an event that could not be read back, and
    /// [`LogError::KeyMissing`] for a run that is sealed with a key that the log does not have. The writer's chain is
    /// then ahead of the log's, so that the writer is closed: every later append is [`LogError::WriterClosed`].
    ///
    /// # Cancel safety
    ///
    /// As [`EventLog::append`]; the writer is closed afterwards.
    pub async fn commit(&mut self) -> Result<Drain<'_, Event>, LogError> {
        if self.events.is_empty() && self.batch.records.is_empty() {
            return Ok(self.events.drain(..));
        }
        self.append().await?;
        Ok(self.events.drain(..))
    }

    async fn append(&mut self) -> Result<(), LogError> {
        if self.is_closed {
            return Err(LogError::WriterClosed(self.batch.run.clone()));
        }
        // The writer stays closed unless the append succeeds.
        self.is_closed = true;
        if let Some(refused) = self.refused.take() {
            return Err(refused);
        }
        if let Some(log) = &self.log {
            match log.append_now(&mut self.batch) {
                Some(appended) => appended?,
                None => log.append(self.batch.take()).await?,
            }
        }
        self.is_closed = false;
        Ok(())
    }
}

/// Returns whether a payload may be nested so deeply that a reader refuses it. Brackets inside strings count too, which
/// only causes a needless check.
fn is_deep(data: &str) -> bool {
    // Most payloads have fewer opening brackets than that in total, and counting them is cheap compared with hashing.
    let opening = |byte: &u8| matches!(byte, b'[' | b'{');
    let count =
        |piece: &[u8]| piece.iter().fold(0_u8, |count, byte| count + u8::from(opening(byte)));
    let opened: usize = data.as_bytes().chunks(64).map(|piece| usize::from(count(piece))).sum();
    if opened <= SURELY_READ {
        return false;
    }
    let mut depth = 0_usize;
    for byte in data.bytes() {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => continue,
        }
        if depth > SURELY_READ {
            return true;
        }
    }
    false
}

/// Creates the record of an event, chained to the previous one.
fn seal_event(event: &Event, previous: &Hash, key: Option<&LogKey>, text: &mut Vec<u8>) -> Record {
    text.clear();
    text.reserve(KEPT_BYTES);
    serde_json::to_writer(&mut *text, &event.kind)
        .expect("payloads have string keys, and memory takes any text");
    let data = match text.len() > KEPT_BYTES {
        true => {
            text.shrink_to_fit();
            String::from_utf8(std::mem::take(text)).expect("JSON is UTF-8")
        }
        false => str::from_utf8(text).expect("JSON is UTF-8").to_owned(),
    };
    let mut record = Record {
        seq: event.seq,
        at: event.at,
        event_type: Cow::Borrowed(event.kind.event_type()),
        actor: event.actor,
        caused_by: event.caused_by,
        schema: event.schema,
        payload: match event.salt {
            Some(salt) => Payload::Salted(salt, data),
            None => Payload::Plain(data),
        },
        hash: Hash::default(),
    };
    record.hash = record.seal(previous, key);
    record
}

impl fmt::Debug for RunWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunWriter").field("summary", &self.batch.summary).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryLog, read_events, verify};
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
        for (levels, readable) in [(3, true), (100, true), (126, true), (127, false), (900, false)]
        {
            let (log, run, _, _) = written(2).await;
            let (summary, _) = read_events(&*log, &run).await.unwrap();
            let claim = log.claim(&run).await.unwrap();
            let mut writer =
                RunWriter::resume(Arc::clone(&log) as Arc<dyn EventLog>, summary, claim);
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
}
