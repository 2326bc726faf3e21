//! Which runs need a look.

use std::collections::BTreeMap;
use std::time::Duration;

use layer0::id::RunId;
use layer0::{Code, Timestamp, code};
use serde::{Deserialize, Serialize};

use crate::{EventLog, LogError, LostRun, OpenApproval, RunFilter, RunState, RunSummary};

/// How long an approval may wait before its run needs a look.
const APPROVAL_WAITS: Duration = Duration::from_secs(24 * 60 * 60);

/// How long a run may be parked before it needs a look.
const PARKED: Duration = Duration::from_secs(60 * 60);

/// A run that does not go on by itself.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct StuckRun {
    /// The run at a glance.
    pub run: RunSummary,
    /// Why it needs a look.
    pub why: StuckReason,
    /// Since when.
    pub since: Timestamp,
}

/// Why a run needs a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StuckReason {
    /// An approval was not decided in time, and no process has taken the run since.
    ApprovalExpired,
    /// An approval waits for more than a day.
    ApprovalWaits,
    /// The run failed because its process died again and again.
    CrashLoop,
    /// The record of the run has lost events that were acknowledged: it is refused until a person accepts that.
    LostTail,
    /// The run has been parked for more than an hour.
    Parked,
    /// No live worker has the agent that the run began with.
    Stranded,
}

impl StuckReason {
    /// Returns the text that stands in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ApprovalExpired => "approval_expired",
            Self::ApprovalWaits => "approval_waits",
            Self::CrashLoop => "crash_loop",
            Self::LostTail => "lost_tail",
            Self::Parked => "parked",
            Self::Stranded => "stranded",
        }
    }

    fn of(open: &OpenApproval, now: Timestamp) -> Option<(Self, Timestamp)> {
        match open.expires_at {
            Some(over) if over <= now => Some((Self::ApprovalExpired, over)),
            _ => {
                let since = open.requested_at;
                (now.since(since) > APPROVAL_WAITS).then_some((Self::ApprovalWaits, since))
            }
        }
    }
}

/// Lists the runs that need a look, those first that have needed it longest. Costs as much as listing the
/// open approvals, the parked runs and those that ended in a crash loop.
///
/// `stranded` are the open runs that no live worker goes on with, and since when: what a database knows whose runs
/// workers share, and a log alone does not. Such a run is listed for that alone, since it stays where it is whatever
/// else is decided about it.
///
/// # Errors
///
/// As [`EventLog::summary`].
///
/// # Cancel safety
///
/// Dropping the future changes nothing.
pub async fn stuck_runs(
    log: &dyn EventLog,
    stranded: &BTreeMap<RunId, Timestamp>,
    now: Timestamp,
) -> Result<Vec<StuckRun>, LogError> {
    let lost = log.lost_tails().await?;
    let is_lost = |run: &RunId| lost.iter().any(|lost| lost.run == *run);
    let mut longest: BTreeMap<RunId, (Timestamp, StuckReason)> = BTreeMap::new();
    for open in log.open_approvals().await? {
        if let Some((why, since)) = StuckReason::of(&open, now) {
            let known = longest.entry(open.run).or_insert((since, why));
            *known = (since, why).min(*known);
        }
    }
    for (run, since) in stranded {
        longest.insert(run.clone(), (*since, StuckReason::Stranded));
    }
    let mut stuck = Vec::with_capacity(longest.len());
    for (run, (since, why)) in longest {
        // It may be over, or taken away, meanwhile.
        let summary = log.summary(&run).await?.filter(RunSummary::is_open);
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

/// Returns what is left of a run that has no record any more.
fn summary_without_record(lost: &LostRun) -> RunSummary {
    let mut left = RunSummary::new(lost.run.clone());
    (left.state, left.started_at) = (RunState::Unreadable, lost.since);
    left.reason = Some(Code::new(code::LOG_LOST_TAIL));
    left
}
