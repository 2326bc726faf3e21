//! The events of a run and its child runs, in the order of their appends.

use std::collections::BTreeSet;

use backstop_event_log::{Cursor, EventFilter, EventLog, FeedRecord, LogError};
use layer0::event::EventKind;
use layer0::id::RunId;

/// Event type of a filter that matches nothing.
const NO_EVENT: &str = "-";

/// A reader of a tree of runs, which can later read the events since.
pub(super) struct Tree<'log> {
    log: &'log dyn EventLog,
    /// The runs with the place up to which each was read, callers before their child runs.
    runs: Vec<(RunId, Cursor)>,
    known: BTreeSet<RunId>,
    /// Events that were appended while other runs were read.
    ahead: Vec<FeedRecord>,
}

impl<'log> Tree<'log> {
    pub(super) fn new(log: &'log dyn EventLog, top: &RunId) -> Self {
        let runs = vec![(top.clone(), Cursor::start())];
        Self { log, runs, known: BTreeSet::from([top.clone()]), ahead: Vec::new() }
    }

    /// Returns the known runs, callers before their child runs.
    pub(super) fn runs(&self) -> impl Iterator<Item = &RunId> {
        self.runs.iter().map(|(run, _)| run)
    }

    /// Returns the events since the last call, in the order of their appends.
    pub(super) async fn read(&mut self) -> Result<Vec<FeedRecord>, LogError> {
        // Events that are appended to a run after it was read have a place after this one.
        let nothing = EventFilter::new().event_type(NO_EVENT);
        let end = self.log.read_feed(&nothing, &Cursor::now()).await?.cursor.number();
        let mut read = std::mem::take(&mut self.ahead);
        let mut at = 0;
        while let Some((run, mut cursor)) = self.runs.get(at).cloned() {
            loop {
                let filter = EventFilter::new().run(run.clone());
                let page = self.log.read_feed(&filter, &cursor).await?;
                page.records.iter().for_each(|next| self.look_below(next));
                read.extend(page.records);
                cursor = page.cursor;
                if page.is_end {
                    break;
                }
            }
            self.runs[at].1 = cursor;
            at += 1;
        }
        read.sort_by_key(|next| next.cursor.number());
        let ahead = read.partition_point(|next| end.is_none() || next.cursor.number() <= end);
        self.ahead = read.split_off(ahead);
        Ok(read)
    }

    fn look_below(&mut self, next: &FeedRecord) {
        if &*next.record.event_type != "operator.dispatched" {
            return;
        }
        let Some(text) = next.record.payload.text() else { return };
        let kind = EventKind::decode(&next.record.event_type, text);
        if let Ok(EventKind::OperatorDispatched(dispatched)) = kind
            && self.known.insert(dispatched.run.clone())
        {
            self.runs.push((dispatched.run, Cursor::start()));
        }
    }
}
