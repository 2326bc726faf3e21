//! Rows of runs, and which of them can be removed.

use std::collections::{BTreeSet, HashMap};

use backstop_event_log::RunState;
use layer0::Timestamp;
use layer0::id::{RunId, SessionId};

use crate::RemoveError;

/// The row of a run.
#[derive(Debug, Clone)]
#[expect(
    clippy::exhaustive_structs,
    reason = "a store fills every field, and has to learn of a new one"
)]
pub struct RunRow {
    /// Number of the row.
    pub id: i64,
    /// The run.
    pub run: RunId,
    /// Session of the run.
    pub session: SessionId,
    /// State, as in [`RunState::as_str`].
    pub state: String,
    /// The run that dispatched it; if its caller kept no record, the run at the head of its callers.
    pub parent: Option<RunId>,
    /// The run that it continues.
    pub follows: Option<RunId>,
    /// Number of its last event.
    pub last_seq: i64,
    /// Time of its end; for an open run, of its start.
    pub ended_at: Timestamp,
}

/// The states of ended runs.
pub(crate) const OVER: [RunState; 2] = [RunState::Finished, RunState::Failed];

impl RunRow {
    /// Returns whether the run has not ended.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !OVER.iter().any(|state| state.as_str() == self.state)
    }
}

/// An ended run with its position in the order of starts.
#[derive(Debug, Clone)]
#[expect(
    clippy::exhaustive_structs,
    reason = "a store fills every field, and has to learn of a new one"
)]
pub struct OldRun {
    /// Number of the row.
    pub id: i64,
    /// The run.
    pub run: RunId,
    /// Time of its start.
    pub started_at: Timestamp,
}

/// Returns the runs that can be removed, among those whose root `wants` selects. A run is kept while it is open, while
/// a kept run continues it, and while its caller or one of its child runs is kept.
#[must_use]
pub fn removable(rows: &[RunRow], wants: impl Fn(&RunRow) -> bool) -> Vec<&RunRow> {
    let by_name: HashMap<&RunId, usize> =
        rows.iter().enumerate().map(|(place, row)| (&row.run, place)).collect();
    let place = |run: Option<&RunId>| run.and_then(|run| by_name.get(run)).copied();
    let mut called: HashMap<usize, Vec<usize>> = HashMap::new();
    for (child, row) in rows.iter().enumerate() {
        if let Some(caller) = place(row.parent.as_ref()) {
            called.entry(caller).or_default().push(child);
        }
    }
    let root = |from: usize| {
        // Bounded, because rows edited by hand may have cycles.
        let callers = std::iter::successors(Some(from), |at| place(rows[*at].parent.as_ref()));
        callers.take(rows.len()).last().unwrap_or(from)
    };
    let mut goes: Vec<bool> =
        (0..rows.len()).map(|at| !rows[at].is_open() && wants(&rows[root(at)])).collect();
    let mut kept: Vec<usize> = (0..rows.len()).filter(|at| !goes[*at]).collect();
    while let Some(at) = kept.pop() {
        let callees = called.get(&at).into_iter().flatten().copied();
        let needed = [place(rows[at].follows.as_ref()), place(rows[at].parent.as_ref())];
        for other in needed.into_iter().flatten().chain(callees) {
            if std::mem::take(&mut goes[other]) {
                kept.push(other);
            }
        }
    }
    rows.iter().zip(goes).filter(|(_, goes)| *goes).map(|(row, _)| row).collect()
}

/// Groups rows by the run at the head of their callers: each group is removed as a whole, after the groups that follow
/// one of its runs. Groups that follow each other are merged.
#[must_use]
pub fn trees(rows: Vec<&RunRow>) -> Vec<Vec<&RunRow>> {
    let mut trees = group_by_root(&rows);
    let homes: HashMap<&RunId, usize> = (trees.iter().enumerate())
        .flat_map(|(tree, rows)| rows.iter().map(move |row| (&row.run, tree)))
        .collect();
    let follows = |tree: usize| {
        let earlier = |row: &&RunRow| homes.get(row.follows.as_ref()?).copied();
        let earlier: Vec<usize> = trees[tree].iter().filter_map(earlier).collect();
        earlier.into_iter().filter(move |earlier| *earlier != tree)
    };
    let mut followers = vec![0_usize; trees.len()];
    (0..trees.len()).flat_map(follows).for_each(|earlier| followers[earlier] += 1);
    let mut ready: BTreeSet<usize> =
        (0..trees.len()).filter(|tree| followers[*tree] == 0).collect();
    let mut order = Vec::with_capacity(trees.len());
    while let Some(tree) = ready.pop_first() {
        order.push(tree);
        for earlier in follows(tree) {
            followers[earlier] -= 1;
            if followers[earlier] == 0 {
                ready.insert(earlier);
            }
        }
    }
    let mut ordered: Vec<Vec<&RunRow>> =
        order.into_iter().map(|tree| std::mem::take(&mut trees[tree])).collect();
    let entangled: Vec<&RunRow> = trees.into_iter().flatten().collect();
    ordered.extend((!entangled.is_empty()).then_some(entangled));
    ordered
}

/// Groups rows by the run at the head of their callers. The order of groups and rows is kept.
fn group_by_root<'r>(rows: &[&'r RunRow]) -> Vec<Vec<&'r RunRow>> {
    let by_name: HashMap<&RunId, &RunRow> = rows.iter().map(|row| (&row.run, *row)).collect();
    let caller = |row: &&RunRow| row.parent.as_ref().and_then(|run| by_name.get(run)).copied();
    let mut places: HashMap<i64, usize> = HashMap::new();
    let mut trees: Vec<Vec<&RunRow>> = Vec::new();
    for row in rows {
        // Bounded, because rows edited by hand may have cycles.
        let root = std::iter::successors(Some(*row), caller).take(rows.len()).last();
        let root = root.map_or(row.id, |root| root.id);
        let place = *places.entry(root).or_insert(trees.len());
        match trees.get_mut(place) {
            Some(tree) => tree.push(row),
            None => trees.push(vec![row]),
        }
    }
    trees
}

/// Returns the error of a run that cannot be deleted because it is not [`removable`].
#[must_use]
pub fn why_kept(rows: &[RunRow], row: &RunRow) -> RemoveError {
    if row.is_open() {
        return RemoveError::Open(row.run.clone());
    }
    let is_there = |run: &RunId| rows.iter().any(|row| row.run == *run);
    if let Some(caller) = row.parent.clone().filter(is_there) {
        return RemoveError::Dispatched { run: row.run.clone(), caller };
    }
    let tree: Vec<&RunRow> = rows.iter().filter(|other| is_in(rows, other, &row.run)).collect();
    if let Some(open) = tree.iter().find(|row| row.is_open()) {
        return RemoveError::Open(open.run.clone());
    }
    for earlier in tree {
        if let Some(by) = rows.iter().find(|later| later.follows.as_ref() == Some(&earlier.run)) {
            return RemoveError::Followed { run: earlier.run.clone(), by: by.run.clone() };
        }
    }
    RemoveError::Open(row.run.clone())
}

/// Returns whether a run is `root` or a descendant of it.
fn is_in(rows: &[RunRow], row: &RunRow, root: &RunId) -> bool {
    let caller = |row: &&RunRow| {
        let parent = row.parent.as_ref()?;
        rows.iter().find(|other| other.run == *parent)
    };
    std::iter::successors(Some(row), caller).take(rows.len()).any(|row| row.run == *root)
}
