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
    /// As [`Log::append`](crate::Log::append), [`LogError::Unreadable`] for an event that could not be read back, and
    /// [`LogError::KeyMissing`] for a run that is sealed with a key that the log does not have. The writer's chain is
    /// then ahead of the log's, so that the writer is closed: every later append is [`LogError::WriterClosed`].
    ///
    /// # Cancel safety
    ///
    /// As [`Log::append`](crate::Log::append); the writer is closed afterwards.
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
mod tests;
