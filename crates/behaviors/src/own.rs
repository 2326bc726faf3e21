//! Events that belong to given runs: the events of the runs, and the failures of deliveries of these events.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use backstop_clock::Clock;
use backstop_event_log::{Cursor, EventFilter, EventLog, FeedRecord, LogError};
use layer0::event::EventKind;
use layer0::id::RunId;

use crate::behavior::Behavior;
use crate::subscription::{DeliveryFailure, EventId};

/// Delay before the feed is read again if it lacks the last event of a run.
const AGAIN: Duration = Duration::from_millis(50);

/// Events that belong to given runs.
pub(crate) struct RunTreeEvents {
    log: Arc<dyn EventLog>,
    clock: Arc<dyn Clock>,
    /// The given runs and their descendants.
    runs: BTreeSet<RunId>,
    /// The failures of deliveries of these events.
    failures: BTreeSet<EventId>,
    events: Vec<FeedRecord>,
}

impl RunTreeEvents {
    /// Reads the events of these runs and their descendants.
    pub(crate) async fn collect(
        log: &Arc<dyn EventLog>,
        clock: &Arc<dyn Clock>,
        runs: &[RunId],
    ) -> Result<Self, LogError> {
        let mut own = Self {
            log: Arc::clone(log),
            clock: Arc::clone(clock),
            runs: BTreeSet::new(),
            failures: BTreeSet::new(),
            events: Vec::new(),
        };
        let mut next = runs.to_vec();
        while let Some(run) = next.pop() {
            if own.runs.contains(&run) {
                continue;
            }
            let records = own.whole_record(&run).await?;
            let dispatches =
                records.iter().filter(|it| it.record.event_type == "operator.dispatched");
            for dispatch in dispatches {
                if let EventKind::OperatorDispatched(below) = dispatch.record.decode(&run)?.kind {
                    next.push(below.run);
                }
            }
            own.events.extend(records);
            own.runs.insert(run);
        }
        Ok(own)
    }

    pub(crate) fn has(&self, event: &EventId) -> bool {
        self.runs.contains(&event.0) || self.failures.contains(event)
    }

    /// Returns the number of the last event that matches the behaviour's patterns; 0 if there is none.
    pub(crate) fn until(&self, behavior: &dyn Behavior) -> u64 {
        let patterns = behavior.patterns();
        let wanted = self.events.iter().filter(|it| patterns.matches(&it.run, &it.record));
        wanted.filter_map(|it| it.cursor.number()).max().unwrap_or_default()
    }

    /// Adds the failures that belong to events of this set. Returns whether any is new.
    pub(crate) async fn follow(
        &mut self,
        failures: Vec<DeliveryFailure>,
    ) -> Result<bool, LogError> {
        let mut segments = BTreeSet::new();
        let before = self.failures.len();
        for DeliveryFailure { of, recorded } in failures {
            if self.has(&of) && self.failures.insert(recorded.clone()) {
                segments.insert(recorded.0);
            }
        }
        for segment in segments {
            let filter = EventFilter::new().run(segment).event_type("behavior.failed");
            let records = self.read(&filter).await?.into_iter();
            let own = records.filter(|it| self.failures.contains(&(it.run.clone(), it.record.seq)));
            let own: Vec<FeedRecord> = own.collect();
            self.events.extend(own);
        }
        Ok(self.failures.len() > before)
    }

    /// Reads a run's whole record from the feed, which may lag behind the record while another transaction is open.
    async fn whole_record(&self, run: &RunId) -> Result<Vec<FeedRecord>, LogError> {
        let Some(summary) = self.log.summary(run).await? else { return Ok(Vec::new()) };
        let filter = EventFilter::new().run(run.clone());
        loop {
            let records = self.read(&filter).await?;
            if records.last().is_some_and(|last| last.record.seq >= summary.last_seq) {
                return Ok(records);
            }
            self.clock.sleep(AGAIN).await;
        }
    }

    async fn read(&self, filter: &EventFilter) -> Result<Vec<FeedRecord>, LogError> {
        let (mut cursor, mut records) = (Cursor::start(), Vec::new());
        loop {
            let page = self.log.read_feed(filter, &cursor).await?;
            records.extend(page.records);
            if page.is_end {
                return Ok(records);
            }
            cursor = page.cursor;
        }
    }
}
