//! Trees of runs: child runs below their callers.

use std::collections::{BTreeMap, BTreeSet};

use backstop_event_log::{EventLog, LogError, RunFilter, RunSummary};
use layer0::Timestamp;
use layer0::id::{RunId, SessionId};

use super::wanted::RunConditions;
use crate::newest::find_newest;

/// The lines from a caller to its child runs.
#[derive(Clone, Copy)]
pub(super) enum Style {
    Indent,
    Lines,
}

impl Style {
    /// Returns the lead of a run, and that of its child runs.
    const fn leads(self, is_last: bool) -> (&'static str, &'static str) {
        match (self, is_last) {
            (Self::Indent, _) => ("  ", "  "),
            (Self::Lines, false) => ("├ ", "│ "),
            (Self::Lines, true) => ("└ ", "  "),
        }
    }
}

/// A run with its place in a tree.
pub(super) struct RunTreeRow {
    pub(super) run: RunSummary,
    /// Lead from its caller.
    pub(super) lead: String,
    /// Information that the place does not show.
    pub(super) note: Option<String>,
}

/// A cache of the callers of runs.
pub(super) struct Callers<'log> {
    log: &'log dyn EventLog,
    known: BTreeMap<RunId, Option<RunSummary>>,
}

impl<'log> Callers<'log> {
    pub(super) fn new(log: &'log dyn EventLog) -> Self {
        Self { log, known: BTreeMap::new() }
    }

    /// Returns a run; `None` if it has no record.
    async fn find(&mut self, run: &RunId) -> Result<Option<RunSummary>, LogError> {
        if !self.known.contains_key(run) {
            let found = self.log.summary(run).await?;
            self.known.insert(run.clone(), found);
        }
        Ok(self.known.get(run).cloned().flatten())
    }

    /// Returns the recorded callers of a run, the nearest first.
    async fn read_callers(&mut self, run: &RunSummary) -> Result<Vec<RunSummary>, LogError> {
        let mut callers: Vec<RunSummary> = Vec::new();
        let mut next = run.parent.clone();
        while let Some(id) = next.take() {
            // In a record that was tampered with, a run may be its own caller.
            if id == run.run || callers.iter().any(|caller| caller.run == id) {
                break;
            }
            if let Some(caller) = self.find(&id).await? {
                next.clone_from(&caller.parent);
                callers.push(caller);
            }
        }
        Ok(callers)
    }

    /// Returns the run at the top, as far as it is known.
    pub(super) async fn root(&mut self, run: &RunSummary) -> Result<RunId, LogError> {
        let callers = self.read_callers(run).await?;
        let top = callers.last().unwrap_or(run);
        Ok(top.parent.as_ref().unwrap_or(&top.run).clone())
    }
}

/// Lists the matching runs, newest first, each with all runs below. Of matching runs in one tree, the highest one
/// determines the place.
pub(super) async fn list(
    log: &dyn EventLog,
    wanted: &RunConditions,
    style: Style,
) -> Result<Vec<RunTreeRow>, LogError> {
    let tops = match wanted.is_narrowed() {
        true => tops(log, wanted).await?,
        false => log.runs(RunFilter::new().limit(wanted.limit()).roots()).await?,
    };
    let below = below(log, &tops).await?;
    let mut placed = Vec::new();
    let mut seen = BTreeSet::new();
    for run in tops {
        let note = run.parent.as_ref().map(|caller| format!("dispatched by {caller}"));
        let mut next = vec![(RunTreeRow { run, lead: String::new(), note }, String::new())];
        while let Some((one, before)) = next.pop() {
            if !seen.insert(one.run.run.clone()) {
                continue;
            }
            let called = below.get(&one.run.run).map_or(&[][..], Vec::as_slice);
            for (at, run) in called.iter().enumerate().rev() {
                let (lead, further) = style.leads(at + 1 == called.len());
                let note = is_root_again(run, &one.run).then(|| "reopened on its own".to_owned());
                let lead = format!("{before}{lead}");
                next.push((
                    RunTreeRow { run: run.clone(), lead, note },
                    format!("{before}{further}"),
                ));
            }
            placed.push(one);
        }
    }
    Ok(placed)
}

/// Returns whether a run was reopened after its caller had ended.
fn is_root_again(run: &RunSummary, caller: &RunSummary) -> bool {
    let reopened = run.reopened.map(|(at, _)| at);
    caller.finished_at.zip(reopened).is_some_and(|(ended, reopened)| reopened >= ended)
}

/// Lists the top runs: of each matching run, its highest matching caller or itself.
async fn tops(log: &dyn EventLog, wanted: &RunConditions) -> Result<Vec<RunSummary>, LogError> {
    let mut callers = Callers::new(log);
    let mut texts = BTreeMap::new();
    find_newest(wanted.limit(), async |looked_at| {
        let (runs, is_all) = wanted.newest(log, looked_at, &mut texts).await?;
        let fitting: BTreeSet<RunId> = runs.iter().map(|run| run.run.clone()).collect();
        let mut tops = BTreeMap::new();
        for run in runs {
            let above = callers.read_callers(&run).await?;
            // Older callers were not searched for the text.
            let fits = |caller: &RunSummary| {
                fitting.contains(&caller.run) || !wanted.has_text() && wanted.fits(caller)
            };
            let top = above.into_iter().rfind(fits).unwrap_or(run);
            tops.insert((top.started_at, top.run.clone()), top);
        }
        Ok((tops.into_values().rev().collect(), is_all))
    })
    .await
}

/// Lists the child runs of runs by caller, oldest first. Child runs have the session of their caller.
async fn below(
    log: &dyn EventLog,
    tops: &[RunSummary],
) -> Result<BTreeMap<RunId, Vec<RunSummary>>, LogError> {
    let mut sessions: BTreeMap<&SessionId, Timestamp> = BTreeMap::new();
    for run in tops {
        let from = sessions.entry(&run.session).or_insert(run.started_at);
        *from = run.started_at.min(*from);
    }
    let mut below: BTreeMap<RunId, Vec<RunSummary>> = BTreeMap::new();
    for (session, from) in sessions {
        let runs = log.runs(RunFilter::new().session(session.clone()).from(from)).await?;
        for run in runs.into_iter().rev() {
            if let Some(caller) = run.parent.clone() {
                below.entry(caller).or_default().push(run);
            }
        }
    }
    Ok(below)
}
