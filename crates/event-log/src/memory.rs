use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use layer0::id::{ApprovalId, RunId, SessionId};

use crate::{
    ApprovalChange, Batch, Claim, Decision, EventLog, LogError, OpenApproval, Record, RunFilter,
    RunSummary,
};

/// A log that lives as long as the process.
#[derive(Debug, Default)]
pub struct MemoryLog {
    runs: Mutex<Runs>,
    claimed: Arc<Mutex<BTreeSet<RunId>>>,
    /// What each run asked of people, and what they decided.
    approvals: Mutex<HashMap<RunId, Vec<Approval>>>,
}

type Approval = (OpenApproval, Option<Decision>);

#[derive(Debug, Default)]
struct Runs {
    by_id: HashMap<RunId, (RunSummary, Vec<Record>)>,
    /// The runs of each conversation that no other run started.
    of_session: HashMap<SessionId, Vec<RunId>>,
}

impl Runs {
    /// Returns the runs of a conversation that no other run started.
    fn conversation(&self, session: &SessionId) -> impl Iterator<Item = &RunSummary> {
        let runs = self.of_session.get(session).into_iter().flatten();
        runs.filter_map(|run| self.by_id.get(run)).map(|(summary, _)| summary)
    }

    /// Says which run a new one would have to wait for, or to follow and does not.
    fn in_the_way_of(&self, new: &RunSummary) -> Option<&RunId> {
        let others = || self.conversation(&new.session);
        let last = others().max_by_key(|summary| (summary.started_at, &summary.run));
        let unfollowed = last.filter(|last| new.follows.as_ref() != Some(&last.run));
        let other = others().find(|other| other.is_open()).or(unfollowed);
        other.map(|other| &other.run)
    }
}

/// Frees a run when it is dropped.
struct Claimed {
    claimed: Arc<Mutex<BTreeSet<RunId>>>,
    run: RunId,
}

impl Drop for Claimed {
    fn drop(&mut self) {
        self.claimed.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.run);
    }
}

impl MemoryLog {
    /// Makes an empty log.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

#[async_trait]
impl EventLog for MemoryLog {
    async fn claim(&self, run: &RunId) -> Result<Claim, LogError> {
        let free = self.claimed.lock().unwrap_or_else(PoisonError::into_inner).insert(run.clone());
        if !free {
            return Err(LogError::Claimed(run.clone()));
        }
        let claimed = Arc::clone(&self.claimed);
        Ok(Claim::holding(Claimed { claimed, run: run.clone() }))
    }

    async fn append(&self, batch: Batch) -> Result<(), LogError> {
        let Some(first) = batch.records.first().map(|record| record.seq) else { return Ok(()) };
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let last = runs.by_id.get(&batch.run).map_or(0, |(summary, _)| summary.last_seq);
        if first != last + 1 {
            return Err(LogError::conflict(batch.run, first));
        }
        if first == 1 && batch.summary.parent.is_none() {
            if let Some(other) = runs.in_the_way_of(&batch.summary) {
                let other = other.clone();
                return Err(LogError::session_busy(batch.summary.session, other));
            }
            let session = batch.summary.session.clone();
            runs.of_session.entry(session).or_default().push(batch.run.clone());
        }
        self.keep_approvals(&batch);
        match runs.by_id.get_mut(&batch.run) {
            Some((summary, records)) => {
                *summary = batch.summary;
                records.extend(batch.records);
            }
            None => {
                runs.by_id.insert(batch.run, (batch.summary, batch.records));
            }
        }
        Ok(())
    }

    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, LogError> {
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(runs.by_id.get(run).map(|(summary, _)| summary.clone()))
    }

    async fn records(&self, run: &RunId, from_seq: u64) -> Result<Vec<Record>, LogError> {
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let records = runs.by_id.get(run).map_or(&[][..], |(_, records)| records);
        Ok(records.iter().filter(|record| record.seq >= from_seq).cloned().collect())
    }

    async fn runs(&self, filter: RunFilter) -> Result<Vec<RunSummary>, LogError> {
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let mut summaries: Vec<RunSummary> = runs
            .by_id
            .values()
            .map(|(summary, _)| summary)
            .filter(|summary| filter.session.as_ref().is_none_or(|s| *s == summary.session))
            .cloned()
            .collect();
        summaries.sort_by(|a, b| (b.started_at, &b.run).cmp(&(a.started_at, &a.run)));
        summaries
            .truncate(filter.limit.and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX));
        Ok(summaries)
    }

    async fn open_approvals(&self) -> Result<Vec<OpenApproval>, LogError> {
        let approvals = self.approvals.lock().unwrap_or_else(PoisonError::into_inner);
        let undecided = approvals.values().flatten().filter(|(_, decision)| decision.is_none());
        let mut open: Vec<OpenApproval> = undecided.map(|(open, _)| open.clone()).collect();
        open.sort_by(|a, b| (a.requested_at, &a.id).cmp(&(b.requested_at, &b.id)));
        Ok(open)
    }

    async fn decide(&self, id: &ApprovalId, decision: Decision) -> Result<bool, LogError> {
        let mut approvals = self.approvals.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = approvals.values_mut().flatten().find(|(open, _)| open.id == *id);
        let Some((_, open @ None)) = asked else { return Ok(false) };
        *open = Some(decision);
        Ok(true)
    }

    async fn decision(&self, id: &ApprovalId) -> Result<Option<Decision>, LogError> {
        let approvals = self.approvals.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = approvals.values().flatten().find(|(open, _)| open.id == *id);
        Ok(asked.and_then(|(_, decision)| decision.clone()))
    }
}

impl MemoryLog {
    fn keep_approvals(&self, batch: &Batch) {
        let mut approvals = self.approvals.lock().unwrap_or_else(PoisonError::into_inner);
        for change in batch.approval_changes() {
            match change {
                ApprovalChange::Asked(open) => {
                    approvals.entry(batch.run.clone()).or_default().push((open, None));
                }
                ApprovalChange::Closed(call_id) => {
                    if let Some(asked) = approvals.get_mut(&batch.run) {
                        asked.retain(|(open, _)| open.call_id != call_id);
                    }
                }
                ApprovalChange::AllClosed => {
                    approvals.remove(&batch.run);
                }
            }
        }
    }
}
