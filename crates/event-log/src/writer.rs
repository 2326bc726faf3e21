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

/// Payloads that are nested less deeply than this are read by any reader of ours.
const SURELY_READ: usize = 64;
/// How much a writer keeps for the text of its next payload; most fit.
const KEPT_BYTES: usize = 512;

/// The one writer of a run: numbers, seals and appends.
pub struct RunWriter {
    /// Without a log nothing is sealed: no later reader could check the chain.
    log: Option<Arc<dyn EventLog>>,
    /// The right to write, held as long as the writer; `None` without a log.
    claim: Option<Claim>,
    /// What the next append writes, and takes from the inbox.
    batch: Batch,
    events: Vec<Event>,
    /// Where a payload is written, before its record takes a copy that has just its size, or a long text
    /// itself.
    text: Vec<u8>,
    /// Why what was staged must not be appended: it could not be read back.
    refused: Option<LogError>,
    /// Refuses every append: there is no right to write, or an append failed and the chain is ahead of the log's.
    is_closed: bool,
    /// Whether the run is a copy of one of another store.
    is_from_elsewhere: bool,
}

impl RunWriter {
    /// Begins a new run, and claims it.
    #[must_use]
    pub fn new(log: Arc<dyn EventLog>, run: RunId) -> Self {
        let claim = log.claim_new(&run);
        Self::under(claim, log, RunSummary::new(run))
    }

    /// Begins a new run that no log keeps. Its events are numbered, and their hashes are zero.
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

    /// Makes the writer of a run that is over and was not claimed. It refuses every append, so that nothing can
    /// act for the run that would have to be recorded first.
    #[must_use]
    pub fn closed(summary: RunSummary) -> Self {
        let batch = Batch::new(summary.run.clone(), 0, Vec::new(), summary.clone());
        Self { batch, is_closed: true, ..Self::without_log(summary.run) }
    }

    /// Goes on with a run that is in the log, under a claim.
    #[must_use]
    pub fn resume(log: Arc<dyn EventLog>, summary: RunSummary, claim: Claim) -> Self {
        Self::under(claim, log, summary)
    }

    fn under(claim: Claim, log: Arc<dyn EventLog>, summary: RunSummary) -> Self {
        let run = summary.run.clone();
        let batch = Batch::new(run.clone(), claim.epoch(), Vec::new(), summary);
        Self { log: Some(log), claim: Some(claim), batch, ..Self::without_log(run) }
    }

    /// Begins a run with the records of another one, whose hashes hold for it too. Where nothing is staged, the run itself
    /// is carried here from another store.
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

    /// Makes it the copy of a run of another store, which need not be in this one.
    #[must_use]
    pub const fn from_elsewhere(mut self) -> Self {
        self.is_from_elsewhere = true;
        self
    }

    /// Returns the run at a glance, as far as it is durable or staged.
    #[must_use]
    pub const fn summary(&self) -> &RunSummary {
        &self.batch.summary
    }

    /// Returns whether it refuses every append.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Returns the lease of its claim, where there is one: while it has ended, nothing may be started for the run.
    #[must_use]
    pub fn lease(&self) -> Option<&Arc<dyn Lease>> {
        self.claim.as_ref()?.lease()
    }

    /// Puts an event behind those that the next [`RunWriter::commit`] appends; its salt is made of
    /// `seed`. A run whose first event names the key of the log is sealed with it.
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
            // A run of the first layout stays one.
            event.salt = (is_first || summary.salted).then(|| seed.salt(event.seq));
            let id = if is_first { key_id_in(&event.kind) } else { summary.key_id.as_deref() };
            match key_named(id, log.key()) {
                Ok(key) => {
                    let record = sealed(&event, &summary.head, key, &mut self.text);
                    event.hash = record.hash;
                    if self.refused.is_none() && record.payload.text().is_some_and(is_deep) {
                        self.refused = record.decode(&event.run).err();
                    }
                    self.batch.records.push(record);
                }
                Err(missing) => self.refused = Some(missing),
            }
        }
        // What a copy adds to the records makes it a run of this log.
        self.batch.is_import &= self.is_from_elsewhere;
        self.batch.summary.apply(&event);
        self.events.push(event);
    }

    /// Takes a row of the inbox with the next [`RunWriter::commit`].
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

    /// Appends what was staged, in one write, and returns it.
    ///
    /// # Errors
    ///
    /// As [`EventLog::append`], [`LogError::Unreadable`] for an event that could not be read back, and
    /// [`LogError::KeyMissing`] for a run that is sealed with a key that the log does not have. The chain of
    /// the writer is then ahead of the log's, so that it is closed: every later append is
    /// [`LogError::WriterClosed`].
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
        // Unless the append is answered with success.
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

/// Is a payload nested so deeply that a reader may refuse it? Signs inside of strings count too, which only
/// makes one look twice.
fn is_deep(data: &str) -> bool {
    // Most have not even so many signs that open something; counting them is cheap beside hashing.
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

/// Makes the record of an event, chained to the one before.
fn sealed(event: &Event, previous: &Hash, key: Option<&LogKey>, text: &mut Vec<u8>) -> Record {
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

    /// Makes a payload with the salt of a seq.
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
        let mut over = RunWriter::closed(kept);
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
