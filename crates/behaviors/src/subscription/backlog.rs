//! Events read from a feed that have not ended.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use backstop_event_log::{Cursor, FeedRecord};
use layer0::id::RunId;

use super::EventId;

/// Maximum number of events in the backlog.
const MAX_AHEAD: usize = 1_024;

/// Number of an event in the backlog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ItemId(u64);

/// The events read, from the first that has not ended.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    items: BTreeMap<ItemId, BacklogItem>,
    last: u64,
    /// Pending events by run, in order; the first one of each run is in progress.
    lanes: BTreeMap<RunId, VecDeque<ItemId>>,
    /// Runs with a recorded position.
    kept: BTreeSet<RunId>,
}

#[derive(Debug)]
struct BacklogItem {
    cursor: Cursor,
    run: RunId,
    seq: u64,
    /// The event to deliver, if any; taken when its delivery begins.
    record: Option<Box<FeedRecord>>,
    is_done: bool,
}

/// Changes of the recorded position when an item ends.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PositionChange {
    pub(super) cursor: Option<Cursor>,
    pub(super) positions: Vec<(RunId, Option<u64>)>,
}

impl Backlog {
    /// Returns an empty backlog for a subscription that has recorded positions of these runs.
    pub(super) fn keeping(runs: impl IntoIterator<Item = RunId>) -> Self {
        Self { kept: runs.into_iter().collect(), ..Self::default() }
    }

    /// Returns whether all events read have ended.
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns whether the backlog has reached its limit.
    pub(super) fn is_full(&self) -> bool {
        self.items.len() >= MAX_AHEAD
    }

    /// Adds an event. Returns its id if no earlier event of its run is pending.
    pub(super) fn push(&mut self, record: FeedRecord, is_wanted: bool) -> Option<ItemId> {
        self.last += 1;
        let (id, run) = (ItemId(self.last), record.run.clone());
        let (cursor, seq) = (record.cursor, record.record.seq);
        let record = is_wanted.then(|| Box::new(record));
        let item = BacklogItem { cursor, run: run.clone(), seq, record, is_done: false };
        self.items.insert(id, item);
        let lane = self.lanes.entry(run).or_default();
        lane.push_back(id);
        (lane.len() == 1).then_some(id)
    }

    /// Returns the id of the event while it is pending.
    pub(super) fn pending(&self, id: ItemId) -> Option<EventId> {
        let item = self.items.get(&id).filter(|item| item.record.is_some())?;
        Some((item.run.clone(), item.seq))
    }

    /// Takes the event to deliver; `None` if it needs no delivery.
    pub(super) fn begin(&mut self, id: ItemId) -> Option<Box<FeedRecord>> {
        self.items.get_mut(&id)?.record.take()
    }

    /// Marks an event as ended. Returns the changes of position, and the next event of the same run.
    pub(super) fn end(&mut self, id: ItemId) -> (PositionChange, Option<ItemId>) {
        let Some(item) = self.items.get_mut(&id) else { return (PositionChange::default(), None) };
        item.is_done = true;
        let (run, seq) = (item.run.clone(), item.seq);
        let lane = self.lanes.entry(run.clone()).or_default();
        lane.retain(|other| *other != id);
        let next = lane.front().copied();
        if next.is_none() {
            self.lanes.remove(&run);
        }
        (self.advance_position(id, &run, seq), next)
    }

    fn advance_position(&mut self, ended: ItemId, run: &RunId, seq: u64) -> PositionChange {
        let mut moved = PositionChange::default();
        let mut passed = BTreeSet::new();
        while let Some(first) = self.items.first_entry().filter(|first| first.get().is_done) {
            let item = first.remove();
            moved.cursor = Some(item.cursor);
            passed.insert(item.run);
        }
        if self.items.contains_key(&ended) {
            moved.positions.push((run.clone(), Some(seq)));
            self.kept.insert(run.clone());
        }
        for run in passed {
            let is_ahead = self.items.values().any(|item| item.is_done && item.run == run);
            if !is_ahead && self.kept.remove(&run) {
                moved.positions.push((run, None));
            }
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstop_event_log::{Payload, Record};
    use layer0::Timestamp;
    use layer0::event::Actor;

    fn read(run: &str, seq: u64, number: u64) -> FeedRecord {
        let record = Record::new(
            seq,
            Timestamp::default(),
            "warning",
            Actor::Runtime,
            Payload::Plain("{}".into()),
        );
        FeedRecord::new(run.into(), record, Cursor::behind(number, None))
    }

    /// Spec: X2. Runs go side by side; each keeps its order, and what ended ahead is kept until the cursor has
    /// passed it.
    #[test]
    fn cursor_stands_behind_what_has_ended() {
        let mut backlog = Backlog::default();
        let a1 = backlog.push(read("a", 1, 1), true).unwrap();
        assert_eq!(backlog.push(read("a", 2, 2), false), None, "the run is at work");
        let b1 = backlog.push(read("b", 1, 3), true).unwrap();
        let (moved, next) = backlog.end(b1);
        assert_eq!(next, None);
        assert_eq!(moved, PositionChange { cursor: None, positions: vec![("b".into(), Some(1))] });
        let (moved, next) = backlog.end(a1);
        assert_eq!(moved.cursor, Some(Cursor::behind(1, None)));
        let (moved, _) = backlog.end(next.unwrap());
        assert_eq!(moved.cursor, Some(Cursor::behind(3, None)));
        assert_eq!(moved.positions, [("b".into(), None)]);
        assert!(backlog.is_empty());
    }
}
