//! State of subscriptions.
//!
//! The deliveries of a subscription are recorded in their own record, in segments that are written, chained and claimed
//! as runs are. Segments are not runs: lists of runs omit them.

use std::collections::BTreeMap;
use std::sync::Arc;

use layer0::id::RunId;
use serde::{Deserialize, Serialize};

use crate::Cursor;

/// Prefix of the ids of segments, which no id of a run has.
const PREFIX: &str = "sub_";

/// Returns the id of a segment of a subscription: `sub_<name>.<number>`.
///
/// ```
/// use backstop_event_log::{parse_segment, segment_id};
///
/// let segment = segment_id("tell ops", 3);
/// assert_eq!(segment.as_str(), "sub_tell ops.3");
/// assert_eq!(parse_segment(&segment), Some(("tell ops", 3)));
/// assert_eq!(parse_segment(&"run_1".into()), None);
/// ```
#[must_use]
pub fn segment_id(name: &str, number: u64) -> RunId {
    RunId::new(format!("{PREFIX}{name}.{number}"))
}

/// Returns the subscription and the number of a segment; `None` for the id of a run.
#[must_use]
pub fn parse_segment(run: &RunId) -> Option<(&str, u64)> {
    let (name, number) = run.as_str().strip_prefix(PREFIX)?.rsplit_once('.')?;
    Some((name, number.parse().ok()?))
}

/// Returns whether this is the id of a segment.
#[must_use]
pub fn is_segment(run: &RunId) -> bool {
    run.as_str().starts_with(PREFIX)
}

/// The state of a subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Subscription {
    /// Name of the subscription.
    pub name: Arc<str>,
    /// Its pattern, according to its newest segment.
    pub pattern: Arc<str>,
    /// Number of its newest segment.
    pub segment: u64,
    /// The position before which all events have ended.
    pub cursor: Cursor,
    /// For runs with ended events after the cursor, the number of the last one.
    pub positions: BTreeMap<RunId, u64>,
}

impl Subscription {
    /// Creates a subscription without ended events after its cursor.
    pub fn new(
        name: impl Into<Arc<str>>,
        pattern: impl Into<Arc<str>>,
        segment: u64,
        cursor: Cursor,
    ) -> Self {
        let (name, pattern) = (name.into(), pattern.into());
        Self { name, pattern, segment, cursor, positions: BTreeMap::new() }
    }

    /// Applies the move of an append.
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

/// The move of a subscription, in the same write as an append to its segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Moves {
    /// Name of the subscription.
    pub name: Arc<str>,
    /// Its pattern.
    pub pattern: Arc<str>,
    /// Number of the segment.
    pub segment: u64,
    /// The new position before which all events have ended; unchanged if `None`.
    pub cursor: Option<Cursor>,
    /// The last ended event by run; `None` removes the run.
    pub positions: Vec<(RunId, Option<u64>)>,
}

impl Moves {
    /// Creates an empty move.
    pub fn new(name: impl Into<Arc<str>>, pattern: impl Into<Arc<str>>, segment: u64) -> Self {
        let (name, pattern) = (name.into(), pattern.into());
        Self { name, pattern, segment, cursor: None, positions: Vec::new() }
    }

    /// Creates a new subscription from the move.
    #[must_use]
    pub fn to_subscription(&self) -> Subscription {
        let cursor = self.cursor.unwrap_or(Cursor::start());
        let (name, pattern) = (Arc::clone(&self.name), Arc::clone(&self.pattern));
        let mut begun = Subscription::new(name, pattern, self.segment, cursor);
        begun.take(self);
        begun
    }
}
