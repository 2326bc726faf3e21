//! Pruning page by page removes the same runs as pruning all at once.

use std::collections::BTreeSet;
use std::time::Duration;

use backstop_event_log::RunState;
use backstop_retention::{RunRow, prune_runs, removable};
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
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let removed = runtime.block_on(prune_runs(&shelf, Duration::ZERO, &states, until)).unwrap();
        prop_assert_eq!(removed.runs.into_iter().collect::<BTreeSet<_>>(), all);
        let read = shelf.read.lock().unwrap();
        let once: BTreeSet<&RunId> = read.iter().collect();
        prop_assert_eq!(read.len(), once.len());
    }
}
