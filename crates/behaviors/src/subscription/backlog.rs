//! What was read of a feed and has not ended.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use backstop_event_log::{Cursor, FeedRecord};
use layer0::id::RunId;

use super::EventId;

/// How many events may be read ahead of the first that has not ended.
const MAX_AHEAD: usize = 1_024;

/// Numbers an event that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ItemId(u64);

/// The events that were read, from the first that has not ended on.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    items: BTreeMap<ItemId, Item>,
    last: u64,
    /// Those that wait, by run, in their order; the first of each run is at work.
    lanes: BTreeMap<RunId, VecDeque<ItemId>>,
    /// The runs of which a position is kept.
    kept: BTreeSet<RunId>,
}

#[derive(Debug)]
struct Item {
    cursor: Cursor,
    run: RunId,
    seq: u64,
    /// What is to be done, if anything; taken when it is begun.
    record: Option<Box<FeedRecord>>,
    is_done: bool,
}

/// What the end of an item moves.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Moved {
    pub(super) cursor: Option<Cursor>,
    pub(super) positions: Vec<(RunId, Option<u64>)>,
}

impl Backlog {
    /// Begins where positions of these runs are kept.
    pub(super) fn keeping(runs: impl IntoIterator<Item = RunId>) -> Self {
        Self { kept: runs.into_iter().collect(), ..Self::default() }
    }

    /// Has everything ended that was read?
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Is as much read ahead as may be?
    pub(super) fn is_full(&self) -> bool {
        self.items.len() >= MAX_AHEAD
    }

    /// Takes in an event that was read. Returns it when nothing of its run is at work before it.
    pub(super) fn push(&mut self, record: FeedRecord, is_wanted: bool) -> Option<ItemId> {
        self.last += 1;
        let (id, run) = (ItemId(self.last), record.run.clone());
        let (cursor, seq) = (record.cursor, record.record.seq);
        let record = is_wanted.then(|| Box::new(record));
        let item = Item { cursor, run: run.clone(), seq, record, is_done: false };
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

    /// Takes what is to be done for an event; `None` where nothing is.
    pub(super) fn begin(&mut self, id: ItemId) -> Option<Box<FeedRecord>> {
        self.items.get_mut(&id)?.record.take()
    }

    /// Notes that an event has ended. Returns what that moves, and the next event of its run.
    pub(super) fn end(&mut self, id: ItemId) -> (Moved, Option<ItemId>) {
        let Some(item) = self.items.get_mut(&id) else { return (Moved::default(), None) };
        item.is_done = true;
        let (run, seq) = (item.run.clone(), item.seq);
        let lane = self.lanes.entry(run.clone()).or_default();
        lane.retain(|other| *other != id);
        let next = lane.front().copied();
        if next.is_none() {
            self.lanes.remove(&run);
        }
        (self.moved(id, &run, seq), next)
    }

    fn moved(&mut self, ended: ItemId, run: &RunId, seq: u64) -> Moved {
        let mut moved = Moved::default();
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
        assert_eq!(moved, Moved { cursor: None, positions: vec![("b".into(), Some(1))] });
        let (moved, next) = backlog.end(a1);
        assert_eq!(moved.cursor, Some(Cursor::behind(1, None)));
        let (moved, _) = backlog.end(next.unwrap());
        assert_eq!(moved.cursor, Some(Cursor::behind(3, None)));
        assert_eq!(moved.positions, [("b".into(), None)]);
        assert!(backlog.is_empty());
    }
}
