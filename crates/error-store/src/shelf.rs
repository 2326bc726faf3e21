//! Shared parts of the stores in memory: rows by id and by age, and the ids of pruned rows.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Bound;

use layer0::Timestamp;
use layer0::id::SessionId;

use crate::{Lookup, Pruned, Retention};

/// Maximum number of ids of pruned rows that are remembered individually.
const MAX_EXPIRED: usize = 4_096;
/// Approximate size of a row without its text, in bytes.
const ROW_BYTES: u64 = 512;

/// A row of a shelf.
pub(crate) trait ShelfItem {
    fn id(&self) -> &str;
    fn session(&self) -> &SessionId;
    fn last_at(&self) -> Timestamp;
    /// Returns the size of the row's text, in bytes.
    fn bytes(&self) -> u64;
}

/// Rows in the order in which they were stored, each under its number.
#[derive(Debug)]
pub(crate) struct Shelf<I> {
    rows: BTreeMap<u64, I>,
    by_id: HashMap<String, u64>,
    by_age: BTreeSet<(Timestamp, u64)>,
    bytes: u64,
    last: u64,
    expired: Expired,
}

impl<I> Default for Shelf<I> {
    fn default() -> Self {
        Self {
            rows: BTreeMap::new(),
            by_id: HashMap::new(),
            by_age: BTreeSet::new(),
            bytes: 0,
            last: 0,
            expired: Expired::default(),
        }
    }
}

impl<I: ShelfItem> Shelf<I> {
    pub(crate) fn add(&mut self, item: I) -> u64 {
        self.last += 1;
        self.by_id.insert(item.id().to_owned(), self.last);
        self.by_age.insert((item.last_at(), self.last));
        self.bytes += item.bytes();
        self.rows.insert(self.last, item);
        self.last
    }

    /// Changes a row; its id and its text stay.
    pub(crate) fn change<T>(&mut self, number: u64, change: impl FnOnce(&mut I) -> T) -> Option<T> {
        let row = self.rows.get_mut(&number)?;
        let before = row.last_at();
        let result = change(row);
        let after = row.last_at();
        if before != after {
            self.by_age.remove(&(before, number));
            self.by_age.insert((after, number));
        }
        Some(result)
    }

    /// Returns whether an id is in use, by a row here or by a pruned one.
    pub(crate) fn knows(&self, id: &str) -> bool {
        self.by_id.contains_key(id) || self.expired.ids.contains_key(id)
    }

    /// Returns a row by its id; with a session, only if the row is in it.
    pub(crate) fn get(&self, session: Option<&SessionId>, id: &str) -> Lookup<&I> {
        match self.by_id.get(id).and_then(|number| self.rows.get(number)) {
            Some(row) if session.is_none_or(|session| row.session() == session) => {
                Lookup::Found(row)
            }
            Some(_) => Lookup::Missing,
            None if self.expired.has(session, id) => Lookup::Expired,
            None => Lookup::Missing,
        }
    }

    /// Returns all rows, the last stored first.
    pub(crate) fn newest(&self) -> impl Iterator<Item = &I> {
        self.rows.values().rev()
    }

    /// Records that a row with this id was removed.
    pub(crate) fn expire(&mut self, session: &SessionId, id: &str) {
        if !self.by_id.contains_key(id) {
            self.expired.add(session.clone(), id.to_owned());
        }
    }

    /// Removes rows that exceed the retention, and passes each with its number to `gone`.
    pub(crate) fn prune(
        &mut self,
        retention: Retention,
        now: Timestamp,
        is_held: impl Fn(&SessionId) -> bool,
        gone: impl FnMut(u64, I),
    ) -> Pruned {
        let oldest = retention.oldest(now);
        let exceeds = |shelf: &Self| retention.is_exceeded(shelf.count(), shelf.bytes);
        self.prune_while(oldest, exceeds, is_held, gone)
    }

    /// Makes room for this many more bytes of text; `false` if held rows occupy the room.
    pub(crate) fn make_room(
        &mut self,
        capacity: u64,
        bytes: u64,
        is_held: impl Fn(&SessionId) -> bool,
        gone: impl FnMut(u64, I),
    ) -> bool {
        let exceeds = |shelf: &Self| {
            let rows = (shelf.count() + 1).saturating_mul(ROW_BYTES);
            shelf.bytes.saturating_add(bytes).saturating_add(rows) > capacity
        };
        // A text that can never fit displaces no others.
        if bytes.saturating_add(ROW_BYTES) > capacity {
            return false;
        }
        self.prune_while(None, exceeds, is_held, gone);
        !exceeds(self)
    }

    fn prune_while(
        &mut self,
        oldest: Option<Timestamp>,
        exceeds: impl Fn(&Self) -> bool,
        is_held: impl Fn(&SessionId) -> bool,
        mut gone: impl FnMut(u64, I),
    ) -> Pruned {
        let mut pruned = Pruned::default();
        let mut from = Bound::Unbounded;
        while let Some(key @ (last_at, number)) =
            self.by_age.range((from, Bound::Unbounded)).next().copied()
        {
            from = Bound::Excluded(key);
            if oldest.is_none_or(|oldest| last_at >= oldest) && !exceeds(self) {
                break;
            }
            if self.rows.get(&number).is_none_or(|row| is_held(row.session())) {
                continue;
            }
            let Some(row) = self.rows.remove(&number) else { continue };
            self.by_age.remove(&key);
            self.by_id.remove(row.id());
            self.bytes -= row.bytes();
            self.expired.add(row.session().clone(), row.id().to_owned());
            pruned.rows += 1;
            pruned.bytes += row.bytes();
            gone(number, row);
        }
        pruned
    }

    fn count(&self) -> u64 {
        u64::try_from(self.rows.len()).unwrap_or(u64::MAX)
    }
}

/// The ids of removed rows.
///
/// Of those beyond [`MAX_EXPIRED`] only the newest is known: ids sort by time, so that an earlier id that is not here
/// counts as removed too, as far as ids show.
#[derive(Debug, Default)]
struct Expired {
    ids: HashMap<String, SessionId>,
    order: VecDeque<String>,
    horizon: Option<String>,
}

impl Expired {
    fn add(&mut self, session: SessionId, id: String) {
        if self.ids.insert(id.clone(), session).is_none() {
            self.order.push_back(id);
        }
        while self.order.len() > MAX_EXPIRED {
            let Some(forgotten) = self.order.pop_front() else { break };
            self.ids.remove(&forgotten);
            self.horizon = self.horizon.take().max(Some(forgotten));
        }
    }

    fn has(&self, session: Option<&SessionId>, id: &str) -> bool {
        match self.ids.get(id) {
            Some(of) => session.is_none_or(|session| session == of),
            None => self.horizon.as_deref().is_some_and(|horizon| {
                id.len() == horizon.len() && id.get(..4) == horizon.get(..4) && id <= horizon
            }),
        }
    }
}
