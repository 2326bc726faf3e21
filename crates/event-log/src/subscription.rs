//! Where subscriptions stand.
//!
//! What came of the deliveries of a subscription is a record of its own, in segments that are written, chained
//! and claimed as runs are. They are no runs: lists of runs leave them out.

use std::collections::BTreeMap;
use std::sync::Arc;

use layer0::id::RunId;

use crate::Cursor;

/// What the ids of segments begin with, and no id of a run does.
const PREFIX: &str = "sub_";

/// Returns the id of a segment of a subscription: `sub_<name>.<number>`.
///
/// ```
/// use backstop_event_log::{segment_id, segment_of};
///
/// let segment = segment_id("tell ops", 3);
/// assert_eq!(segment.as_str(), "sub_tell ops.3");
/// assert_eq!(segment_of(&segment), Some(("tell ops", 3)));
/// assert_eq!(segment_of(&"run_1".into()), None);
/// ```
#[must_use]
pub fn segment_id(name: &str, number: u64) -> RunId {
    RunId::new(format!("{PREFIX}{name}.{number}"))
}

/// Returns the subscription of a segment, and its number; `None` for the id of a run.
#[must_use]
pub fn segment_of(run: &RunId) -> Option<(&str, u64)> {
    let (name, number) = run.as_str().strip_prefix(PREFIX)?.rsplit_once('.')?;
    Some((name, number.parse().ok()?))
}

/// Is this the id of a segment, and no run's?
#[must_use]
pub fn is_segment(run: &RunId) -> bool {
    run.as_str().starts_with(PREFIX)
}

/// Where a subscription stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Subscription {
    /// Its name.
    pub name: Arc<str>,
    /// What it is shown, as its newest segment says.
    pub pattern: Arc<str>,
    /// The number of its newest segment.
    pub segment: u64,
    /// Behind what has ended of all runs.
    pub cursor: Cursor,
    /// The last event that has ended, of each run of which one did that stands behind the cursor.
    pub positions: BTreeMap<RunId, u64>,
}

impl Subscription {
    /// Describes a subscription of which nothing has ended behind its cursor.
    pub fn new(
        name: impl Into<Arc<str>>,
        pattern: impl Into<Arc<str>>,
        segment: u64,
        cursor: Cursor,
    ) -> Self {
        let (name, pattern) = (name.into(), pattern.into());
        Self { name, pattern, segment, cursor, positions: BTreeMap::new() }
    }

    /// Takes in what an append moves.
    pub fn take(&mut self, moves: &Moves) {
        self.pattern = Arc::clone(&moves.pattern);
        self.segment = moves.segment;
        self.cursor = moves.cursor.unwrap_or(self.cursor);
        for (run, position) in &moves.positions {
            match position {
                Some(seq) => drop(self.positions.insert(run.clone(), *seq)),
                None => drop(self.positions.remove(run)),
            }
        }
    }
}

/// What an append to a segment moves, in the same write.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Moves {
    /// The subscription.
    pub name: Arc<str>,
    /// What it is shown.
    pub pattern: Arc<str>,
    /// The number of the segment.
    pub segment: u64,
    /// Behind what has ended of all runs; as before where `None`.
    pub cursor: Option<Cursor>,
    /// The last event that has ended, by run; `None` forgets the run.
    pub positions: Vec<(RunId, Option<u64>)>,
}

impl Moves {
    /// Moves nothing yet.
    pub fn new(name: impl Into<Arc<str>>, pattern: impl Into<Arc<str>>, segment: u64) -> Self {
        let (name, pattern) = (name.into(), pattern.into());
        Self { name, pattern, segment, cursor: None, positions: Vec::new() }
    }

    /// Makes a subscription of it that was not there before.
    #[must_use]
    pub fn begun(&self) -> Subscription {
        let cursor = self.cursor.unwrap_or(Cursor::start());
        let (name, pattern) = (Arc::clone(&self.name), Arc::clone(&self.pattern));
        let mut begun = Subscription::new(name, pattern, self.segment, cursor);
        begun.take(self);
        begun
    }
}
