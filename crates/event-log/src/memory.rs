use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use layer0::id::{ApprovalId, RunId};

use crate::{
    ApprovalChange, Batch, Claim, Decision, EventLog, LogError, OpenApproval, Record, RunFilter,
    RunSummary,
};

/// A log that lives as long as the process.
#[derive(Debug, Default)]
pub struct MemoryLog {
    runs: Mutex<BTreeMap<RunId, (RunSummary, Vec<Record>)>>,
    claimed: Arc<Mutex<BTreeSet<RunId>>>,
    approvals: Mutex<BTreeMap<ApprovalId, (OpenApproval, Option<Decision>)>>,
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
        let last = runs.get(&batch.run).map_or(0, |(summary, _)| summary.last_seq);
        if first != last + 1 {
            return Err(LogError::conflict(batch.run, first));
        }
        if first == 1 && batch.summary.parent.is_none() {
            let of_session = |summary: &&RunSummary| {
                summary.parent.is_none() && summary.session == batch.summary.session
            };
            let others = || runs.values().map(|(summary, _)| summary).filter(of_session);
            let last = others().max_by_key(|summary| (summary.started_at, &summary.run));
            let followed = batch.summary.follows.as_ref();
            let unfollowed = last.filter(|last| followed != Some(&last.run));
            if let Some(other) = others().find(|other| other.is_open()).or(unfollowed) {
                return Err(LogError::session_busy(batch.summary.session, other.run.clone()));
            }
        }
        self.keep_approvals(&batch);
        match runs.get_mut(&batch.run) {
            Some((summary, records)) => {
                *summary = batch.summary;
                records.extend(batch.records);
            }
            None => {
                runs.insert(batch.run, (batch.summary, batch.records));
            }
        }
        Ok(())
    }

    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, LogError> {
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(runs.get(run).map(|(summary, _)| summary.clone()))
    }

    async fn records(&self, run: &RunId, from_seq: u64) -> Result<Vec<Record>, LogError> {
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let records = runs.get(run).map_or(&[][..], |(_, records)| records);
        Ok(records.iter().filter(|record| record.seq >= from_seq).cloned().collect())
    }

    async fn runs(&self, filter: RunFilter) -> Result<Vec<RunSummary>, LogError> {
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let mut summaries: Vec<RunSummary> = runs
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
        let undecided = approvals.values().filter(|(_, decision)| decision.is_none());
        let mut open: Vec<OpenApproval> = undecided.map(|(open, _)| open.clone()).collect();
        open.sort_by_key(|open| open.requested_at);
        Ok(open)
    }

    async fn decide(&self, id: &ApprovalId, decision: Decision) -> Result<bool, LogError> {
        let mut approvals = self.approvals.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((_, open @ None)) = approvals.get_mut(id) else { return Ok(false) };
        *open = Some(decision);
        Ok(true)
    }

    async fn decision(&self, id: &ApprovalId) -> Result<Option<Decision>, LogError> {
        let approvals = self.approvals.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(approvals.get(id).and_then(|(_, decision)| decision.clone()))
    }
}

impl MemoryLog {
    fn keep_approvals(&self, batch: &Batch) {
        let mut approvals = self.approvals.lock().unwrap_or_else(PoisonError::into_inner);
        for change in batch.approval_changes() {
            match change {
                ApprovalChange::Asked(open) => {
                    approvals.insert(open.id.clone(), (open, None));
                }
                ApprovalChange::Closed(call_id) => approvals
                    .retain(|_, (open, _)| open.run != batch.run || open.call_id != call_id),
                ApprovalChange::AllClosed => approvals.retain(|_, (open, _)| open.run != batch.run),
            }
        }
    }
}
