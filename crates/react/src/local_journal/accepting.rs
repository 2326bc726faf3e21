//! Decisions of the approver in this process: written into the inbox before the run learns of them.

use std::collections::BTreeMap;
use std::time::Duration;

use backstop_event_log::LogError;

use crate::effect::Effects;
use crate::journal::{ApprovalReply, StepEnd, StepId};

/// Time limit for writing a decision: as long as a worker waits for an append.
const PATIENCE: Duration = Duration::from_secs(60);
/// Delay before the first repetition, and the maximum delay before a later one.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// Decisions that could not be written yet, by their steps.
#[derive(Default)]
pub(super) struct Unwritten(BTreeMap<StepId, InboxRetry>);

struct InboxRetry {
    /// Time of the first try, on the monotonic clock.
    since: Duration,
    wait: Duration,
}

impl Unwritten {
    /// Returns the delay before a decision is written again; `None` after the time limit.
    pub(super) fn next_wait(&mut self, step: StepId, now: Duration) -> Option<Duration> {
        let tried = self.0.entry(step).or_insert(InboxRetry { since: now, wait: FIRST_WAIT });
        let wait = tried.wait;
        tried.wait = wait.saturating_mul(2).min(LONGEST_WAIT);
        (now.saturating_sub(tried.since) < PATIENCE).then_some(wait)
    }

    /// Forgets a decision that was written.
    pub(super) fn forget(&mut self, step: StepId) {
        self.0.remove(&step);
    }
}

/// Returns whether the end of a step is a decision to be written into the inbox.
pub(super) const fn is_decision(end: &StepEnd) -> bool {
    matches!(end, StepEnd::Approval(_, ApprovalReply::Decision(_)) | StepEnd::Expiry(..))
}

/// Writes a decision into the inbox. Returns whether the inbox determines which decision counts; `false` without a log.
pub(super) async fn write(effects: &Effects, end: &StepEnd) -> Result<bool, LogError> {
    match end {
        StepEnd::Approval(approval, ApprovalReply::Decision(decision)) => {
            effects.accept(&approval.id, decision).await
        }
        StepEnd::Expiry(approval, _) => effects.expire(approval).await,
        _ => Ok(false),
    }
}

/// Returns the end of a step after its decision was written.
pub(super) fn mark_written(end: StepEnd, is_in_inbox: bool) -> StepEnd {
    match end {
        StepEnd::Approval(approval, ApprovalReply::Decision(_)) if is_in_inbox => {
            StepEnd::Approval(approval, ApprovalReply::InInbox)
        }
        StepEnd::Expiry(approval, _) => StepEnd::Expiry(approval, is_in_inbox),
        end => end,
    }
}
