mod keys;
mod sessions;
mod transcripts;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use layer0::Timestamp;
use layer0::event::EventKind;
use layer0::id::{ApprovalId, CallId, RunId, SessionId};

use crate::{
    ApprovalChange, Batch, Claim, Cursor, Erasures, EventFeed, EventFilter, EventLog, EventWatch,
    EventWatches, FeedPage, FeedRecord, Inbox, InboxMessage, InboxRequest, InboxWatch,
    InboxWatches, KeyBinding, Log, LogError, LogKey, OpenApproval, Payload, Ports, Record,
    RunFilter, RunSummary, Runs, Seals, StartKey, StartKeys, Subscription, Subscriptions,
    TranscriptPart, Transcripts, is_segment,
};

use self::keys::KeyTable;
use self::sessions::Sessions;
use self::transcripts::TranscriptTable;

/// A log that lives as long as the process.
#[derive(Debug, Default)]
pub struct MemoryLog {
    key: Option<LogKey>,
    runs: Arc<Mutex<RunTable>>,
    keys: Mutex<KeyTable>,
    watches: InboxWatches,
    event_watches: EventWatches,
}

#[derive(Debug, Default)]
struct RunTable {
    by_id: HashMap<RunId, StoredRun>,
    /// The events of all runs, by run and seq, in the order of appends.
    appended: Vec<(RunId, u64)>,
    sessions: Sessions,
    subscriptions: BTreeMap<Arc<str>, Subscription>,
    /// The run that requested each approval.
    of_approval: HashMap<ApprovalId, RunId>,
    /// The current claims by run; each has a unique number.
    claimed: HashMap<RunId, u64>,
    last_claim: u64,
    last_message: u64,
    /// Number of erased events.
    erasures: u64,
    transcripts: TranscriptTable,
}

#[derive(Debug)]
struct StoredRun {
    summary: RunSummary,
    records: Vec<Record>,
    /// Epoch of the newest claim.
    epoch: u64,
    approvals: Vec<OpenApproval>,
    /// The expired approvals.
    expired: BTreeSet<ApprovalId>,
    inbox: Vec<InboxMessage>,
}

/// A request with its sender and time.
struct IncomingRequest<'a> {
    request: &'a InboxRequest,
    by: &'a str,
    at: Timestamp,
}

impl StoredRun {
    fn new(first: &Batch) -> Self {
        Self {
            summary: RunSummary::new(first.run.clone()),
            records: Vec::new(),
            epoch: first.epoch,
            approvals: Vec::new(),
            expired: BTreeSet::new(),
            inbox: Vec::new(),
        }
    }

    /// Applies a batch: its records, its changes of approvals and the rows that it removes.
    fn take(&mut self, batch: &mut Batch, changes: Vec<ApprovalChange>) {
        for change in changes {
            match change {
                ApprovalChange::Asked(open) => self.approvals.push(open),
                ApprovalChange::Closed(call_id) => {
                    self.approvals.retain(|open| open.call_id != call_id);
                }
                ApprovalChange::Expired(id) => {
                    self.approvals.retain(|open| open.id != id);
                    self.expired.insert(id);
                }
                ApprovalChange::AllClosed => self.approvals.clear(),
            }
        }
        self.inbox.retain(|message| match message.request.decides() {
            Some(approval) => self.approvals.iter().any(|open| open.id == *approval),
            None => batch.summary.is_open() || message.request.outlasts_the_run(),
        });
        self.inbox.retain(|message| !batch.taken.contains(&message.id));
        batch.taken.clear();
        self.records.append(&mut batch.records);
        self.summary.clone_from(&batch.summary);
    }

    /// Returns an open approval, with the pending request that decides it.
    fn find_approval(&self, id: &ApprovalId) -> Option<(&OpenApproval, Option<&InboxRequest>)> {
        let open = self.approvals.iter().find(|open| open.id == *id)?;
        let mut sent = self.inbox.iter().map(|message| &message.request);
        Some((open, sent.find(|request| request.decides() == Some(id))))
    }

    /// Returns whether a request to stop is pending.
    fn is_to_stop(&self) -> bool {
        let stops = |message: &InboxMessage| matches!(message.request, InboxRequest::Cancel { .. });
        self.inbox.iter().any(stops)
    }

    fn is_undecided(&self, id: &ApprovalId) -> bool {
        matches!(self.find_approval(id), Some((_, None)))
    }

    /// Returns whether a settlement of this call is pending or recorded.
    fn is_settled(&self, call: &CallId) -> bool {
        let waits = |message: &InboxMessage| matches!(&message.request, InboxRequest::Settle { call: of, .. } if of == call);
        let settles = |record: &Record| {
            record.event_type == "tool.resolved"
                && matches!(
                    record.decode(&self.summary.run).map(|event| event.kind),
                    Ok(EventKind::ToolResolved(resolved)) if resolved.call_id == *call
                )
        };
        self.inbox.iter().any(waits) || self.records.iter().any(settles)
    }

    /// Returns whether this request may decide this approval now.
    fn accepts(&self, id: &ApprovalId, sent: &IncomingRequest<'_>) -> Result<bool, LogError> {
        let expired = || LogError::ApprovalExpired(id.clone());
        let is_decision = matches!(sent.request, InboxRequest::Decide { .. });
        match self.find_approval(id) {
            Some((_, None)) if is_decision && self.is_to_stop() => Ok(false),
            Some((open, None)) if is_decision => open.check(sent.by, sent.at).map(|()| true),
            Some((open, None)) => Ok(open.is_over(sent.at)),
            Some((_, Some(InboxRequest::Expire { .. }))) if is_decision => Err(expired()),
            None if is_decision && self.expired.contains(id) => Err(expired()),
            _ => Ok(false),
        }
    }
}

impl RunTable {
    /// Returns whether a part was made from the whole record of its run.
    fn is_current(&self, part: &TranscriptPart) -> bool {
        self.by_id.get(&part.run).is_some_and(|kept| kept.summary.head == part.head)
    }

    /// Returns the run that a request addresses, if its condition holds.
    fn accepts(&self, sent: &IncomingRequest<'_>) -> Result<Option<RunId>, LogError> {
        let (run, approval) = match sent.request {
            InboxRequest::Cancel { run }
            | InboxRequest::Input { run, .. }
            | InboxRequest::Signal { run, .. } => (Some(run), None),
            InboxRequest::Decide { approval, .. } | InboxRequest::Expire { approval } => {
                (self.of_approval.get(approval), Some(approval))
            }
            InboxRequest::Settle { run, call, .. } => {
                let kept = self.by_id.get(run).filter(|kept| !kept.is_settled(call));
                return Ok(kept.map(|kept| kept.summary.run.clone()));
            }
        };
        let Some(kept) = run.and_then(|run| self.by_id.get(run)) else { return Ok(None) };
        let is_accepted = match approval {
            Some(approval) => kept.accepts(approval, sent)?,
            None => kept.summary.is_open(),
        };
        Ok(is_accepted.then(|| kept.summary.run.clone()))
    }

    /// Returns an event by its number, with its run.
    fn event(&self, number: usize) -> Option<(&StoredRun, &Record)> {
        let (run, seq) = self.appended.get(number.checked_sub(1)?)?;
        let kept = self.by_id.get(run)?;
        let place = usize::try_from(*seq).ok()?.checked_sub(1)?;
        kept.records.get(place).map(|record| (kept, record))
    }

    /// Returns the position after an event.
    fn cursor(&self, number: usize) -> Cursor {
        let hash = self.event(number).map(|(_, record)| record.hash);
        Cursor::behind(u64::try_from(number).unwrap_or(u64::MAX), hash.as_ref())
    }

    /// Returns the events after a cursor.
    fn feed(&self, filter: &EventFilter, cursor: &Cursor) -> Result<FeedPage, LogError> {
        let end = self.appended.len();
        let after = match cursor.number().map(usize::try_from) {
            None => end,
            Some(Ok(after)) if after <= end => after,
            Some(_) => return Err(LogError::ForeignCursor(*cursor)),
        };
        if self.event(after).is_some_and(|(_, record)| !cursor.fits(&record.hash)) {
            return Err(LogError::ForeignCursor(*cursor));
        }
        let (mut records, mut bytes, mut read_to) = (Vec::new(), 0, after);
        let until = end.min(after.saturating_add(FeedPage::MAX_LOOKED_AT));
        while read_to < until
            && records.len() < FeedPage::MAX_RECORDS
            && bytes < FeedPage::MAX_BYTES
        {
            read_to += 1;
            let Some((kept, record)) = self.event(read_to) else { continue };
            let RunSummary { run, session, .. } = &kept.summary;
            if filter.matches(run, session, record) {
                bytes += record.payload.text().map_or(0, str::len);
                records.push(FeedRecord::new(run.clone(), record.clone(), self.cursor(read_to)));
            }
        }
        Ok(FeedPage::new(records, self.cursor(read_to), read_to == end))
    }

    /// Appends the records of a batch. Returns whether there are any.
    fn append(&mut self, batch: &mut Batch) -> Result<bool, LogError> {
        if batch.records.is_empty() {
            return self.move_alone(batch).map(|()| false);
        }
        let first = batch.first_seq();
        let known = self.by_id.get(&batch.run);
        let (last, epoch) = known.map_or((0, batch.epoch), |it| (it.summary.last_seq, it.epoch));
        if first != last + 1 || epoch != batch.epoch {
            return Err(LogError::conflict(batch.run.clone(), first));
        }
        let changes: Vec<ApprovalChange> =
            batch.approval_changes().collect::<Result<_, LogError>>()?;
        let is_root = batch.summary.parent.is_none() && !is_segment(&batch.run);
        if first == 1 && is_root {
            self.sessions.begin(&batch.summary)?;
        }
        if batch.reopens() {
            self.sessions.reopen(&batch.summary)?;
        }
        self.move_subscription(batch)?;
        if is_root {
            self.sessions.update(&batch.summary);
        }
        for change in &changes {
            if let ApprovalChange::Asked(open) = change {
                self.of_approval.insert(open.id.clone(), batch.run.clone());
            }
        }
        let appended = batch.records.iter().map(|record| (batch.run.clone(), record.seq));
        self.appended.extend(appended);
        match self.by_id.get_mut(&batch.run) {
            Some(kept) => kept.take(batch, changes),
            None => {
                let mut kept = StoredRun::new(batch);
                kept.take(batch, changes);
                self.by_id.insert(batch.run.clone(), kept);
            }
        }
        Ok(true)
    }

    /// Moves a subscription without an event, under the claim of its segment.
    fn move_alone(&mut self, batch: &mut Batch) -> Result<(), LogError> {
        let is_held = |kept: &StoredRun| {
            kept.epoch == batch.epoch && kept.summary.last_seq == batch.summary.last_seq
        };
        match self.by_id.get(&batch.run) {
            Some(kept) if !is_held(kept) => {
                Err(LogError::conflict(batch.run.clone(), batch.first_seq()))
            }
            _ => self.move_subscription(batch),
        }
    }

    fn move_subscription(&mut self, batch: &mut Batch) -> Result<(), LogError> {
        let Some(moves) = batch.moves.take() else { return Ok(()) };
        let stands = self.subscriptions.get(&moves.name);
        if stands.is_some_and(|it| ![it.segment, it.segment + 1].contains(&moves.segment)) {
            return Err(LogError::conflict(batch.run.clone(), batch.first_seq()));
        }
        let begun = || moves.to_subscription();
        let name = Arc::clone(&moves.name);
        self.subscriptions.entry(name).or_insert_with(begun).take(&moves);
        Ok(())
    }

    fn claim(&mut self, run: &RunId) -> u64 {
        self.last_claim += 1;
        self.claimed.insert(run.clone(), self.last_claim);
        self.last_claim
    }
}

/// Releases a claim when dropped, unless another claim was made since.
struct Claimed {
    runs: Arc<Mutex<RunTable>>,
    run: RunId,
    number: u64,
}

impl Drop for Claimed {
    fn drop(&mut self) {
        let claimed = &mut self.runs.lock().unwrap_or_else(PoisonError::into_inner).claimed;
        if claimed.get(&self.run) == Some(&self.number) {
            claimed.remove(&self.run);
        }
    }
}

impl MemoryLog {
    /// Creates an empty log.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the key that seals new runs.
    #[must_use]
    pub fn with_key(mut self, key: LogKey) -> Self {
        self.key = Some(key);
        self
    }

    fn lock(&self) -> MutexGuard<'_, RunTable> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn guard_claim(&self, run: &RunId, number: u64) -> Claimed {
        Claimed { runs: Arc::clone(&self.runs), run: run.clone(), number }
    }
}

#[async_trait]
impl StartKeys for MemoryLog {
    async fn bind(
        &self,
        key: &StartKey,
        run: &RunId,
        now: Timestamp,
    ) -> Result<KeyBinding, LogError> {
        let has_record = |run: &RunId| self.lock().by_id.contains_key(run);
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        keys.bind(key, run, now, has_record)
    }
}

impl EventLog for MemoryLog {
    fn ports(&self) -> Ports<'_> {
        Ports::new(self)
            .seals(self)
            .feed(self)
            .subscriptions(self)
            .runs(self)
            .inbox(self)
            .erasures(self)
            .transcripts(self)
    }
}

#[async_trait]
impl Seals for MemoryLog {
    fn key(&self) -> Option<&LogKey> {
        self.key.as_ref()
    }
}

#[async_trait]
impl Log for MemoryLog {
    async fn claim(&self, run: &RunId) -> Result<Claim, LogError> {
        let mut runs = self.lock();
        if runs.claimed.contains_key(run) {
            return Err(LogError::Claimed(run.clone()));
        }
        let kept = runs.by_id.get_mut(run).ok_or_else(|| LogError::NotFound(run.clone()))?;
        kept.epoch += 1;
        let epoch = kept.epoch;
        let number = runs.claim(run);
        Ok(Claim::new(epoch, self.guard_claim(run, number)))
    }

    fn claim_new(&self, run: &RunId) -> Claim {
        let mut runs = self.lock();
        let taken = runs.claimed.contains_key(run) || runs.by_id.contains_key(run);
        let number = if taken { 0 } else { runs.claim(run) };
        Claim::new(Claim::FIRST, self.guard_claim(run, number))
    }

    fn append_now(&self, batch: &mut Batch) -> Option<Result<(), LogError>> {
        let appended = self.lock().append(batch);
        if matches!(appended, Ok(true)) {
            self.event_watches.ring();
        }
        Some(appended.map(drop))
    }

    async fn append(&self, mut batch: Batch) -> Result<(), LogError> {
        self.append_now(&mut batch).unwrap_or(Ok(()))
    }

    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, LogError> {
        Ok(self.lock().by_id.get(run).map(|kept| kept.summary.clone()))
    }

    async fn records(&self, run: &RunId, from_seq: u64) -> Result<Vec<Record>, LogError> {
        let runs = self.lock();
        let records = runs.by_id.get(run).map_or(&[][..], |kept| &kept.records);
        // Records are numbered without a gap.
        let before = usize::try_from(from_seq.saturating_sub(1)).unwrap_or(usize::MAX);
        Ok(records.get(before..).unwrap_or_default().to_vec())
    }
}

#[async_trait]
impl EventFeed for MemoryLog {
    async fn read_feed(&self, filter: &EventFilter, cursor: &Cursor) -> Result<FeedPage, LogError> {
        self.lock().feed(filter, cursor)
    }

    fn watch_events(&self) -> EventWatch {
        self.event_watches.watch()
    }
}

#[async_trait]
impl Subscriptions for MemoryLog {
    async fn subscription(&self, name: &str) -> Result<Option<Subscription>, LogError> {
        Ok(self.lock().subscriptions.get(name).cloned())
    }

    async fn subscriptions(&self) -> Result<Vec<Subscription>, LogError> {
        Ok(self.lock().subscriptions.values().cloned().collect())
    }
}

#[async_trait]
impl Runs for MemoryLog {
    async fn runs(&self, filter: RunFilter) -> Result<Vec<RunSummary>, LogError> {
        let runs = self.lock();
        let mut summaries: Vec<RunSummary> = runs
            .by_id
            .values()
            .map(|kept| &kept.summary)
            .filter(|summary| filter.matches(summary))
            .cloned()
            .collect();
        summaries.sort_by(|a, b| (b.started_at, &b.run).cmp(&(a.started_at, &a.run)));
        summaries
            .truncate(filter.limit.and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX));
        Ok(summaries)
    }

    async fn last_root(&self, session: &SessionId) -> Result<Option<RunSummary>, LogError> {
        let runs = self.lock();
        let last = runs.sessions.last(session).and_then(|last| runs.by_id.get(last));
        Ok(last.map(|kept| kept.summary.clone()))
    }
}

#[async_trait]
impl Inbox for MemoryLog {
    async fn open_approvals(&self) -> Result<Vec<OpenApproval>, LogError> {
        let runs = self.lock();
        let mut open: Vec<OpenApproval> = runs
            .by_id
            .values()
            .flat_map(|kept| kept.approvals.iter().filter(|open| kept.is_undecided(&open.id)))
            .cloned()
            .collect();
        open.sort_by(|a, b| (a.requested_at, &a.id).cmp(&(b.requested_at, &b.id)));
        Ok(open)
    }

    async fn send(&self, request: InboxRequest, by: &str, at: Timestamp) -> Result<bool, LogError> {
        let mut runs = self.lock();
        let Some(run) = runs.accepts(&IncomingRequest { request: &request, by, at })? else {
            return Ok(false);
        };
        runs.last_message += 1;
        let message = InboxMessage::new(runs.last_message, request, by, at);
        if let Some(kept) = runs.by_id.get_mut(&run) {
            kept.inbox.push(message);
        }
        drop(runs);
        self.watches.ring(&run);
        Ok(true)
    }

    async fn inbox(&self, run: &RunId) -> Result<Vec<InboxMessage>, LogError> {
        Ok(self.lock().by_id.get(run).map(|kept| kept.inbox.clone()).unwrap_or_default())
    }

    fn watch_inbox(&self, run: &RunId) -> InboxWatch {
        self.watches.watch(run)
    }
}

#[async_trait]
impl Erasures for MemoryLog {
    async fn erase(&self, run: &RunId, seq: u64) -> Result<Vec<RunId>, LogError> {
        let mut runs = self.lock();
        if runs.claimed.contains_key(run) {
            return Err(LogError::Claimed(run.clone()));
        }
        let kept = runs.by_id.get_mut(run).ok_or_else(|| LogError::NotFound(run.clone()))?;
        let record = kept.records.iter_mut().find(|record| record.seq == seq);
        let record = record.ok_or(LogError::not_erasable(seq, "the run has no such event"))?;
        let digest = record.payload.digest();
        let digest = digest.ok_or(LogError::not_erasable(seq, "it has no salt"))?;
        record.payload = Payload::Erased(digest);
        let hash = record.hash;
        runs.transcripts.remove(run);
        runs.erasures += 1;
        let holds = |kept: &&StoredRun| {
            let of_copy = |record: &Record| record.hash == hash && record.payload.text().is_some();
            kept.records.iter().any(of_copy)
        };
        let mut copies: Vec<RunId> =
            runs.by_id.values().filter(holds).map(|kept| kept.summary.run.clone()).collect();
        copies.sort();
        Ok(copies)
    }

    async fn erasures(&self) -> Result<Option<u64>, LogError> {
        Ok(Some(self.lock().erasures))
    }
}

#[async_trait]
impl Transcripts for MemoryLog {
    async fn transcript(&self, until: &RunId) -> Result<Vec<TranscriptPart>, LogError> {
        let runs = self.lock();
        Ok(runs.transcripts.read(until, |part| runs.is_current(part)))
    }

    async fn keep_transcript(
        &self,
        parts: Vec<TranscriptPart>,
        erasures: u64,
    ) -> Result<(), LogError> {
        let mut runs = self.lock();
        if runs.erasures == erasures {
            let current: Vec<_> = parts.into_iter().filter(|part| runs.is_current(part)).collect();
            for part in current {
                runs.transcripts.keep(part);
            }
        }
        Ok(())
    }
}
