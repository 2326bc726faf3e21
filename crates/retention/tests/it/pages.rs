//! Pruning page by page removes the same runs as pruning all at once.

use std::collections::BTreeSet;
use std::time::Duration;

use backstop_event_log::RunState;
use backstop_retention::{RunRow, plan_prune, prune_runs, removable};
use layer0::Timestamp;
use layer0::id::RunId;
use proptest::prelude::*;

use crate::shelf::Shelf;

/// A run that is open or its duration, with the earlier runs that dispatched it and that it follows.
type Drawn = (Option<i64>, bool, Option<prop::sample::Index>, Option<prop::sample::Index>);

fn drawn() -> impl Strategy<Value = Vec<Drawn>> {
    let earlier = || prop::option::weighted(0.4, any::<prop::sample::Index>());
    let took = prop::option::weighted(0.9, 0..20_i64);
    prop::collection::vec((took, any::<bool>(), earlier(), earlier()), 1..24)
}

fn name(number: usize) -> RunId {
    format!("run_{number}").into()
}

fn rows(drawn: &[Drawn]) -> Vec<RunRow> {
    let row = |(number, (took, fails, parent, follows)): (usize, &Drawn)| {
        let earlier = |index: &Option<prop::sample::Index>| {
            index.filter(|_| number > 0).map(|index| name(index.index(number)))
        };
        let state = match (took, fails) {
            (None, _) => RunState::Running,
            (Some(_), true) => RunState::Failed,
            (Some(_), false) => RunState::Finished,
        };
        let id = i64::try_from(number).unwrap();
        RunRow {
            id,
            run: name(number),
            session: "s".into(),
            state: state.as_str().to_owned(),
            parent: earlier(parent),
            follows: earlier(follows),
            last_seq: 2,
            ended_at: Timestamp::from_millis(id + took.unwrap_or_default()),
        }
    };
    drawn.iter().enumerate().map(row).collect()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// Returns runs that are over; each has ended as many milliseconds after its start.
fn over(took: &[i64]) -> Vec<RunRow> {
    rows(&took.iter().map(|took| (Some(*took), false, None, None)).collect::<Vec<_>>())
}

/// Spec: S10. A run sealed with a missing key stays, and the others go.
#[test]
fn run_without_its_key_stays() {
    let prune = |is_key_missing| {
        let mut shelf = Shelf::new(9, over(&[1, 1, 1]));
        shelf.broken = vec![(name(1), is_key_missing)];
        let now = Timestamp::from_millis(99);
        let pruned = block_on(prune_runs(&shelf, Duration::ZERO, &[], now));
        let left: Vec<RunId> = shelf.rows().iter().map(|row| row.run.clone()).collect();
        (pruned.map(|removed| removed.runs), left)
    };
    let (removed, left) = prune(true);
    assert_eq!((removed.unwrap(), left), (vec![name(2), name(0)], vec![name(1)]));
    assert!(prune(false).0.is_err(), "any other failure is returned");
}

/// Spec: S10
#[test]
fn dry_run_names_what_pruning_removes() {
    let shelf = Shelf::new(2, over(&[1, 1, 9]));
    let now = Timestamp::from_millis(13);
    let age = Duration::from_millis(10);
    let planned = block_on(plan_prune(&shelf, age, &[], now)).unwrap();
    assert_eq!((planned.as_slice(), shelf.rows().len()), (&[name(1), name(0)][..], 3));
    assert_eq!(*shelf.swept.lock().unwrap(), 0, "it is only read");
    let none = block_on(plan_prune(&shelf, age, &[RunState::Failed], now)).unwrap();
    assert_eq!(none, []);
    assert_eq!(block_on(prune_runs(&shelf, age, &[], now)).unwrap().runs, planned);
    assert_eq!(*shelf.swept.lock().unwrap(), 1);
}

/// Spec: S10. A run that ended that long ago to the millisecond stays.
#[test]
fn run_of_just_this_age_stays() {
    let shelf = Shelf::new(9, over(&[4]));
    for (now, left) in [(14, 1), (15, 0)] {
        let now = Timestamp::from_millis(now);
        block_on(prune_runs(&shelf, Duration::from_millis(10), &[], now)).unwrap();
        assert_eq!(shelf.rows().len(), left, "{now}");
    }
    let shelf = Shelf::new(9, over(&[4]));
    let now = Timestamp::from_millis(15);
    let removed = block_on(prune_runs(&shelf, Duration::MAX, &[], now)).unwrap();
    assert_eq!(removed.runs, [], "nothing is as old");
}

proptest! {
    /// Spec: S10. What is kept is told by the runs that a run is connected with, and these are read once.
    #[test]
    fn pages_keep_what_all_runs_keep(
        drawn in drawn(), until in 1..30_i64, page in 1..4_usize, failed in any::<bool>(),
    ) {
        let rows = rows(&drawn);
        let states = if failed { vec![RunState::Failed] } else { Vec::new() };
        let until = Timestamp::from_millis(until);
        let is_old = |row: &RunRow| {
            row.ended_at < until && (!failed || row.state == RunState::Failed.as_str())
        };
        let all: BTreeSet<RunId> =
            removable(&rows, is_old).into_iter().map(|row| row.run.clone()).collect();
        let shelf = Shelf::new(page, rows);
        let removed = block_on(prune_runs(&shelf, Duration::ZERO, &states, until)).unwrap();
        prop_assert_eq!(removed.runs.into_iter().collect::<BTreeSet<_>>(), all);
        let read = shelf.read.lock().unwrap();
        let once: BTreeSet<&RunId> = read.iter().collect();
        prop_assert_eq!(read.len(), once.len());
    }
}
