//! The newest acknowledged events that a process knows.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use layer0::Timestamp;
use layer0::event::LostTail;
use layer0::id::RunId;

use crate::{AcceptedLoss, RunSummary, is_segment};

/// A run whose record has lost its tail: it is refused until a person accepts the loss.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostRun {
    /// The run.
    pub run: RunId,
    /// The newest event known to be lost.
    pub tail: LostTail,
    /// Time at which the loss was found.
    pub since: Timestamp,
}

impl LostRun {
    /// Creates the description of a run with its lost event and the time at which the loss was found.
    #[must_use]
    pub const fn new(run: RunId, tail: LostTail, since: Timestamp) -> Self {
        Self { run, tail, since }
    }
}

/// A random number in the row of a run. A run that is removed and starts again under the same id has another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "it is a number and nothing else")]
pub struct Incarnation(pub [u8; 16]);

/// The newest event of a run that a process knows to be acknowledged.
///
/// ```
/// use backstop_event_log::{KnownEnd, RunSummary};
///
/// let end = KnownEnd::new(&RunSummary::new("run_1".into()));
/// assert!(!end.is_lost(true, None));
/// assert!(end.is_lost(false, None), "the record ends before it, or has another event there");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownEnd {
    /// The event.
    pub tail: LostTail,
    /// Number of accepted losses before the event was written.
    losses: u32,
    incarnation: Option<Incarnation>,
}

impl KnownEnd {
    /// Returns the end of a run according to its summary.
    #[must_use]
    pub fn new(summary: &RunSummary) -> Self {
        let tail = LostTail::new(summary.last_seq, summary.head);
        Self { tail, losses: summary.losses(), incarnation: None }
    }

    /// Sets the incarnation of the run.
    #[must_use]
    pub const fn in_incarnation(mut self, incarnation: Option<Incarnation>) -> Self {
        self.incarnation = incarnation;
        self
    }

    /// Returns the incarnation of the run, if known.
    #[must_use]
    pub const fn incarnation(&self) -> Option<Incarnation> {
        self.incarnation
    }

    /// Returns whether the row of the run has another incarnation: one of the two runs was removed, or the store was
    /// restored from an earlier state.
    #[must_use]
    pub fn is_other(&self, row: Option<Incarnation>) -> bool {
        matches!((self.incarnation, row), (Some(known), Some(row)) if known != row)
    }

    /// Returns whether the event is lost.
    ///
    /// `is_there` is whether the record has the event, and `accepted` the last accepted loss in the record.
    #[must_use]
    pub fn is_lost(&self, is_there: bool, accepted: Option<&AcceptedLoss>) -> bool {
        let is_accepted =
            |loss: &AcceptedLoss| loss.count > self.losses && loss.tail.seq >= self.tail.seq;
        !is_there && !accepted.is_some_and(is_accepted)
    }

    /// Returns whether it is at least as new as another end of the same run.
    const fn is_newer(&self, other: &Self) -> bool {
        self.losses > other.losses || self.losses == other.losses && self.tail.seq >= other.tail.seq
    }
}

/// The newest acknowledged events of the runs that an open log of this process wrote to or read last. Clones share
/// them.
///
/// ```
/// use backstop_event_log::{KnownEnd, KnownEnds, RunSummary};
///
/// let mut summary = RunSummary::new("run_1".into());
/// summary.last_seq = 4;
/// let ends = KnownEnds::default();
/// ends.note(&summary.run, KnownEnd::new(&summary));
/// assert_eq!(ends.find(&"run_1".into()).map(|end| end.tail.seq), Some(4));
/// ends.forget(&"run_1".into());
/// assert!(ends.find(&"run_1".into()).is_none());
/// ```
#[derive(Debug, Clone, Default)]
pub struct KnownEnds(Arc<Mutex<Generations>>);

/// Two generations of entries: the old one is dropped when the young one is full.
#[derive(Debug, Default)]
struct Generations {
    young: HashMap<RunId, KnownEnd>,
    old: HashMap<RunId, KnownEnd>,
}

impl KnownEnds {
    /// Minimum number of runs that are remembered; at most twice as many are.
    pub const MIN_RUNS: usize = 16_384;

    fn lock(&self) -> MutexGuard<'_, Generations> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the end of a run that was read or written. Segments of subscriptions are not remembered, because
    /// nothing acts on them.
    pub fn note(&self, run: &RunId, end: KnownEnd) {
        if end.tail.seq > 0 && !is_segment(run) {
            self.lock().note(run, end);
        }
    }

    /// Returns the known end of a run.
    #[must_use]
    pub fn find(&self, run: &RunId) -> Option<KnownEnd> {
        self.lock().find(run)
    }

    /// Removes a run that was removed from the log.
    pub fn forget(&self, run: &RunId) {
        let mut generations = self.lock();
        generations.young.remove(run);
        generations.old.remove(run);
    }
}

impl Generations {
    fn find(&self, run: &RunId) -> Option<KnownEnd> {
        self.young.get(run).or_else(|| self.old.get(run)).copied()
    }

    fn note(&mut self, run: &RunId, end: KnownEnd) {
        let known = self.find(run).filter(|known| !end.is_newer(known));
        let mut newest = known.unwrap_or(end);
        if newest.incarnation.is_none() && known.is_none() {
            // An append does not read the row of its run.
            newest.incarnation = self.find(run).and_then(|known| known.incarnation);
        }
        if let Some(young) = self.young.get_mut(run) {
            *young = newest;
            return;
        }
        if self.young.len() >= KnownEnds::MIN_RUNS {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(run.clone(), newest);
    }
}

#[cfg(test)]
mod tests {
    use layer0::event::Hash;

    use super::*;

    fn summary(run: &str, last_seq: u64, losses: u32) -> RunSummary {
        let mut summary = RunSummary::new(run.into());
        (summary.last_seq, summary.head) =
            (last_seq, Hash([u8::try_from(last_seq).unwrap_or(0); 32]));
        if losses > 0 {
            let tail = LostTail::new(9, Hash([9; 32]));
            summary.accepted_loss = Some(Box::new(AcceptedLoss { tail, count: losses }));
        }
        summary
    }

    /// Spec: J2
    #[test]
    fn newest_acknowledged_event_is_remembered() {
        let (ends, run) = (KnownEnds::default(), "run_1".into());
        for (last_seq, losses, expected) in [(3, 0, 3), (5, 0, 5), (4, 0, 5), (2, 1, 2), (7, 0, 2)]
        {
            ends.note(&run, KnownEnd::new(&summary("run_1", last_seq, losses)));
            let known = ends.find(&run).map(|end| end.tail.seq);
            assert_eq!(known, Some(expected), "{last_seq} after {losses} losses");
        }
    }

    /// Spec: J2
    #[test]
    fn accepted_loss_covers_older_events_alone() {
        let end = |last_seq, losses| KnownEnd::new(&summary("run_1", last_seq, losses));
        let accepted = |count| AcceptedLoss { tail: LostTail::new(9, Hash([9; 32])), count };
        for (of, count, is_lost) in [(9, 1, false), (4, 1, false), (10, 1, true), (9, 0, true)] {
            let accepted = accepted(count);
            let accepted = (count > 0).then_some(&accepted);
            assert_eq!(end(of, 0).is_lost(false, accepted), is_lost, "{of} after {count}");
        }
        assert!(end(8, 1).is_lost(false, Some(&accepted(1))), "it was written after that loss");
        assert!(!end(8, 1).is_lost(false, Some(&accepted(2))));
    }

    /// Spec: J2
    #[test]
    fn incarnation_stays_known_through_appends() {
        let (ends, run) = (KnownEnds::default(), "run_1".into());
        let row = Some(Incarnation([1; 16]));
        ends.note(&run, KnownEnd::new(&summary("run_1", 3, 0)).in_incarnation(row));
        ends.note(&run, KnownEnd::new(&summary("run_1", 4, 0)));
        let known = ends.find(&run).unwrap();
        assert_eq!((known.tail.seq, known.incarnation()), (4, row));
        for (other, is_other) in [(None, false), (row, false), (Some(Incarnation([2; 16])), true)] {
            assert_eq!(known.is_other(other), is_other, "{other:?}");
        }
    }

    /// Spec: J2
    #[test]
    fn newest_row_names_its_incarnation() {
        let (ends, run) = (KnownEnds::default(), "run_1".into());
        let row = |number| Some(Incarnation([number; 16]));
        for (last_seq, incarnation, expected) in
            [(3, row(1), row(1)), (3, row(2), row(2)), (2, row(1), row(2)), (4, None, row(2))]
        {
            let end = KnownEnd::new(&summary("run_1", last_seq, 0)).in_incarnation(incarnation);
            ends.note(&run, end);
            assert_eq!(ends.find(&run).unwrap().incarnation(), expected, "{last_seq}");
        }
        ends.forget(&run);
        assert_eq!(ends.find(&run), None);
    }

    /// Spec: J2, X2. Nothing acts on a segment, or on a run without events.
    #[test]
    fn only_runs_with_events_are_remembered() {
        let ends = KnownEnds::default();
        for (run, last_seq, is_known) in
            [("run_1", 0, false), ("run_1", 1, true), ("sub_tell.1", 1, false)]
        {
            ends.note(&run.into(), KnownEnd::new(&summary(run, last_seq, 0)));
            assert_eq!(ends.find(&run.into()).is_some(), is_known, "{run} {last_seq}");
        }
    }

    /// Spec: J2. A run that was pushed out of the young generation is forgotten too.
    #[test]
    fn old_end_is_forgotten() {
        let (ends, run) = (KnownEnds::default(), "run_old".into());
        ends.note(&run, KnownEnd::new(&summary("run_old", 1, 0)));
        for number in 0..KnownEnds::MIN_RUNS {
            let name = format!("run_{number}");
            ends.note(&name.as_str().into(), KnownEnd::new(&summary(&name, 1, 0)));
        }
        assert!(ends.lock().old.contains_key(&run) && ends.find(&run).is_some());
        ends.forget(&run);
        assert_eq!(ends.find(&run), None);
    }

    #[test]
    fn memory_of_ends_is_bounded() {
        let ends = KnownEnds::default();
        for number in 0..KnownEnds::MIN_RUNS * 3 {
            for run in [format!("run_{number}"), "run_at_work".to_owned()] {
                ends.note(&run.as_str().into(), KnownEnd::new(&summary(&run, 1, 0)));
            }
        }
        let generations = ends.lock();
        assert!(generations.young.len() + generations.old.len() <= KnownEnds::MIN_RUNS * 2);
        assert!(generations.find(&"run_at_work".into()).is_some());
        assert!(generations.find(&"run_0".into()).is_none());
    }
}
