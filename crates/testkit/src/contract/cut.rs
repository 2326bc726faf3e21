//! The guarantee that a run whose process died goes on as one that was not disturbed.

mod checks;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use backstop_event_log::{Batch, EventLog};
use futures_util::stream::{self, StreamExt};
use layer0::event::{Event, EventKind};
use layer0::id::{CallId, RunId};
use serde_json::Value;

use crate::{Tape, append_all};

/// Number of concurrent cases: a store may be slow.
const SIDE_BY_SIDE: usize = 4;

/// A tree of runs that can be performed in one process, and continued in another one.
#[async_trait]
pub trait ResumableRun: fmt::Debug + Send + Sync {
    /// Returns the id of the root.
    fn root(&self) -> RunId;

    /// Performs the tree in a process of its own, to its end: begins the root if the log has no record of it, and
    /// resumes it otherwise. Returns the answer, or the code of the failure.
    async fn perform(&self, log: Arc<dyn EventLog>, acts: Acts) -> Result<Value, String>;

    /// Returns whether the calls of a tool do nothing that must not be repeated.
    fn is_repeatable(&self, tool: &str) -> bool {
        let _ = tool;
        false
    }

    /// Returns whether the runs of an operator without a record do nothing in their first attempt.
    fn acts_late(&self, operator: &str) -> bool {
        let _ = operator;
        false
    }

    /// Returns whether the tree has a budget. What a dead process used of it is used up, and the answer may be another
    /// one.
    fn has_budget(&self) -> bool;

    /// Returns whether each process uses a budget alike. If runs run at the same time, their threads decide which of
    /// them gets the last of it; if a model fails in each process anew, each failure is an attempt.
    fn is_used_alike(&self) -> bool;
}

/// The acts of a process: calls of tools, and runs of operators without a record. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Acts(Arc<Mutex<BTreeMap<String, u32>>>);

impl Acts {
    /// Records an execution of a call, at the moment of its effect.
    pub fn call(&self, run: &RunId, call: &CallId) {
        self.add(call_key(run, call));
    }

    /// Records an execution of an operator that keeps no record, at the moment of its effect.
    pub fn run(&self, run: &RunId) {
        self.add(run.to_string());
    }

    fn add(&self, act: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(act).or_default() += 1;
    }

    fn times(&self, act: &str) -> u32 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(act).copied().unwrap_or(0)
    }
}

fn call_key(run: &RunId, call: &CallId) -> String {
    format!("{run}/{call}")
}

/// Performs a tree of runs once undisturbed, and once for each of its appends from the record that a process leaves that
/// dies behind that append. `open` returns an empty log. Each time,
///
/// - no act is repeated that had begun and may not be repeated;
/// - every record is complete: closed, with one end an episode, verified and replayed;
/// - the answer and the end of each dispatch of the root are those of the undisturbed tree, unless the process died in
///   the middle of an act.
///
/// Returns the number of appends.
///
/// # Panics
///
/// If a guarantee does not hold.
pub async fn cuts<O, F>(open: O, tree: &dyn ResumableRun) -> usize
where
    O: Fn() -> F,
    F: Future<Output = Arc<dyn EventLog>>,
{
    let tape = Arc::new(Tape::new(open().await));
    let log = Arc::clone(&tape) as Arc<dyn EventLog>;
    let whole = tree.perform(Arc::clone(&log), Acts::default()).await;
    let ends = checks::check_records(&*log, &tree.root(), "undisturbed").await;
    let batches = tape.batches();
    let cases = stream::iter(0..=batches.len()).map(async |count| {
        let place = format!("{tree:?} dies behind append {count} of {}", batches.len());
        let (log, acts) = (open().await, Acts::default());
        append_all(&batches[..count], &*log).await;
        let cut = Cut::read(&batches[..count], tree);
        let resumed = tree.perform(Arc::clone(&log), acts.clone()).await;
        cut.check_acts(&acts, &place);
        let seen = checks::check_records(&*log, &tree.root(), &place).await;
        if cut.is_compared(tree) {
            assert_eq!(resumed, whole, "{place}");
            assert_eq!(seen, ends, "{place}");
        }
    });
    cases.buffered(SIDE_BY_SIDE).for_each(async |()| {}).await;
    batches.len()
}

/// The open work in the record of a process that died.
#[derive(Default)]
struct Cut {
    /// Acts that began, and whose end is not recorded.
    open: BTreeSet<String>,
    /// Those of operators that do nothing in their first attempt.
    late: BTreeSet<String>,
    /// Runs whose model was asked and has not answered.
    asked: BTreeSet<RunId>,
}

impl Cut {
    fn read(batches: &[Batch], tree: &dyn ResumableRun) -> Self {
        let mut cut = Self::default();
        for batch in batches {
            for record in &batch.records {
                cut.take(record.decode(&batch.run).expect("what was appended is readable"), tree);
            }
        }
        cut
    }

    fn take(&mut self, event: Event, tree: &dyn ResumableRun) {
        let run = event.run;
        match event.kind {
            EventKind::ModelRequested(_) => drop(self.asked.insert(run)),
            EventKind::ModelAttempted(_) => drop(self.asked.remove(&run)),
            EventKind::ToolRequested(it) if !tree.is_repeatable(&it.tool) => {
                self.open.insert(call_key(&run, &it.call_id));
            }
            EventKind::ToolResponded(it) => drop(self.open.remove(&call_key(&run, &it.call_id))),
            EventKind::OperatorDispatched(it) if it.unrecorded => {
                self.open.insert(it.run.to_string());
                if tree.acts_late(&it.operator) {
                    self.late.insert(it.run.to_string());
                }
            }
            EventKind::OperatorReturned(it) => drop(self.open.remove(it.run.as_str())),
            _ => {}
        }
    }

    fn check_acts(&self, acts: &Acts, place: &str) {
        for act in &self.open {
            let most = u32::from(self.late.contains(act));
            assert!(acts.times(act) <= most, "{place}: {act} is repeated");
        }
    }

    /// Returns whether the answer has to be that of the undisturbed tree.
    fn is_compared(&self, tree: &dyn ResumableRun) -> bool {
        let has_budget = tree.has_budget();
        let is_same = !has_budget || (self.asked.is_empty() && tree.is_used_alike());
        self.open.is_empty() && is_same
    }
}
