//! Runs that need attention.

use std::collections::BTreeMap;
use std::time::Duration;

use layer0::id::RunId;
use layer0::{Code, Timestamp, code};
use serde::{Deserialize, Serialize};

use crate::{
    EventLog, InboxRequest, LogError, LostRun, OpenApproval, RunFilter, RunState, RunSummary,
    open_root,
};

/// Time that an approval may wait before its run needs attention.
const APPROVAL_WAITS: Duration = Duration::from_secs(24 * 60 * 60);

/// Time that a decision may wait for a process before its run needs attention.
const DECISION_WAITS: Duration = Duration::from_secs(60);

/// Time that a run may be parked before it needs attention.
const PARKED: Duration = Duration::from_secs(60 * 60);

/// A run that does not continue by itself.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct StuckRun {
    /// The run's summary.
    pub run: RunSummary,
    /// The reason why it needs attention.
    pub why: StuckReason,
    /// Time since when.
    pub since: Timestamp,
}

/// Open runs without a live process, each with the time since when.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnattendedRuns {
    /// Runs whose agent no live worker has.
    pub stranded: BTreeMap<RunId, Timestamp>,
    /// Runs whose process died while they were running.
    pub interrupted: BTreeMap<RunId, Timestamp>,
}

impl UnattendedRuns {
    /// Creates the lists of stranded and interrupted runs.
    #[must_use]
    pub const fn new(
        stranded: BTreeMap<RunId, Timestamp>,
        interrupted: BTreeMap<RunId, Timestamp>,
    ) -> Self {
        Self { stranded, interrupted }
    }
}

/// Reason why a run needs attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StuckReason {
    /// An approval expired, and no process has claimed the run since.
    ApprovalExpired,
    /// An approval has been open for more than a day.
    ApprovalWaits,
    /// The run failed because its process died repeatedly.
    CrashLoop,
    /// An approval was decided more than a minute ago, and no process has taken the decision.
    Decided,
    /// The process of the run died while it was running, and no process has claimed it since.
    Interrupted,
    /// The record of the run has lost acknowledged events: the run is refused until a person accepts the loss.
    LostTail,
    /// The run has been parked for more than an hour.
    Parked,
    /// No live worker has the agent that the run started with.
    Stranded,
}

impl StuckReason {
    /// Returns the name in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ApprovalExpired => "approval_expired",
            Self::ApprovalWaits => "approval_waits",
            Self::CrashLoop => "crash_loop",
            Self::Decided => "decided",
            Self::Interrupted => "interrupted",
            Self::LostTail => "lost_tail",
            Self::Parked => "parked",
            Self::Stranded => "stranded",
        }
    }

    fn for_approval(open: &OpenApproval, now: Timestamp) -> Option<(Self, Timestamp)> {
        match open.expires_at {
            Some(over) if over <= now => Some((Self::ApprovalExpired, over)),
            _ => {
                let since = open.requested_at;
                (now.since(since) > APPROVAL_WAITS).then_some((Self::ApprovalWaits, since))
            }
        }
    }
}

/// Lists the runs that need attention, the longest waiting first. Costs as much as listing the open approvals, the
/// waiting and parked runs and those that ended in a crash loop, and one read of the inbox for each waiting run.
///
/// `unattended` are the open runs without a process, which a database knows and a log alone does not. Such a run is
/// listed only for that reason, since no decision about it lets it continue. For a tree of runs, only the root is
/// listed.
///
/// # Errors
///
/// As [`Log::summary`](crate::Log::summary).
///
/// # Cancel safety
///
/// Dropping the future changes nothing.
pub async fn stuck_runs(
    log: &dyn EventLog,
    unattended: &UnattendedRuns,
    now: Timestamp,
) -> Result<Vec<StuckRun>, LogError> {
    let lost = log.lost_tails().await?;
    let is_lost = |run: &RunId| lost.iter().any(|lost| lost.run == *run);
    let mut longest: BTreeMap<RunId, (Timestamp, StuckReason)> = BTreeMap::new();
    for open in log.open_approvals().await? {
        if let Some((why, since)) = StuckReason::for_approval(&open, now) {
            let known = longest.entry(open.run).or_insert((since, why));
            *known = (since, why).min(*known);
        }
    }
    for (run, since) in decided_runs(log, now).await? {
        longest.entry(run).or_insert((since, StuckReason::Decided));
    }
    let UnattendedRuns { stranded, interrupted } = unattended;
    for (run, since) in interrupted {
        longest.insert(run.clone(), (*since, StuckReason::Interrupted));
    }
    for (run, since) in stranded {
        longest.insert(run.clone(), (*since, StuckReason::Stranded));
    }
    let mut stuck = Vec::with_capacity(longest.len());
    for (run, (since, why)) in longest {
        // The run may have ended or been removed since.
        let summary = match log.summary(&run).await {
            Ok(summary) => summary.filter(RunSummary::is_open),
            Err(LogError::Tampered { .. } | LogError::UnreadableRun { .. }) => {
                Some(unreadable_summary(&run, since))
            }
            Err(error) => return Err(error),
        };
        let is_below = |run: &RunSummary| {
            why == StuckReason::Interrupted
                && run.parent.as_ref().is_some_and(|parent| interrupted.contains_key(parent))
        };
        let summary = summary.filter(|run| !is_below(run));
        stuck.extend(summary.map(|run| StuckRun { run, why, since }));
    }
    stuck.retain(|stuck: &StuckRun| !is_lost(&stuck.run.run));
    for lost in &lost {
        let run = log.summary(&lost.run).await?.unwrap_or_else(|| summary_without_record(lost));
        stuck.push(StuckRun { run, why: StuckReason::LostTail, since: lost.since });
    }
    for run in log.runs(RunFilter::new().state(RunState::Parked)).await? {
        let since = run.parked.map_or(run.started_at, |(since, _)| since);
        let is_listed = stranded.contains_key(&run.run) || is_lost(&run.run);
        if now.since(since) > PARKED && !is_listed {
            stuck.push(StuckRun { run, why: StuckReason::Parked, since });
        }
    }
    let looped = RunFilter::new().state(RunState::Failed).reason(code::RUN_CRASH_LOOP);
    for run in log.runs(looped).await?.into_iter().filter(|run| !is_lost(&run.run)) {
        let since = run.finished_at.unwrap_or(run.started_at);
        stuck.push(StuckRun { run, why: StuckReason::CrashLoop, since });
    }
    stuck.sort_by_key(|stuck| stuck.since);
    Ok(stuck)
}

/// Returns the runs with a decision that no process has taken, each with the time of the decision. For a tree of runs,
/// that is the root: its child runs resume with it.
async fn decided_runs(
    log: &dyn EventLog,
    now: Timestamp,
) -> Result<BTreeMap<RunId, Timestamp>, LogError> {
    let mut decided: BTreeMap<RunId, Timestamp> = BTreeMap::new();
    for run in log.runs(RunFilter::new().state(RunState::WaitingApproval)).await? {
        let inbox = log.inbox(&run.run).await?;
        let mut decisions =
            inbox.iter().filter(|row| matches!(row.request, InboxRequest::Decide { .. }));
        let Some(first) = decisions.next().filter(|row| now.since(row.at) > DECISION_WAITS) else {
            continue;
        };
        let root = open_root(log, &run).await?.unwrap_or(run.run);
        let since = decided.entry(root).or_insert(first.at);
        *since = first.at.min(*since);
    }
    Ok(decided)
}

/// Returns the summary of a run without a record.
fn summary_without_record(lost: &LostRun) -> RunSummary {
    let mut left = unreadable_summary(&lost.run, lost.since);
    left.reason = Some(Code::new(code::LOG_LOST_TAIL));
    left
}

/// Returns the summary of an unreadable run.
fn unreadable_summary(run: &RunId, since: Timestamp) -> RunSummary {
    let mut left = RunSummary::new(run.clone());
    (left.state, left.started_at) = (RunState::Unreadable, since);
    left
}
