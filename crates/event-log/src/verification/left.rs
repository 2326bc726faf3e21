//! The parts of a summary that erased events changed.

use crate::{Record, RunSummary};

/// The parts of a summary that erased events may have changed.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct LostParts {
    is_any: bool,
    identity: bool,
    terms: bool,
    state: bool,
    usage: bool,
    messages: bool,
    failures: bool,
    errors: bool,
    causes: bool,
    raised: bool,
    ends: bool,
    losses: bool,
}

impl LostParts {
    /// Returns the parts that erased events may have changed.
    pub(super) fn without(erased: &[&Record]) -> Self {
        let mut left = Self::default();
        for record in erased {
            left.is_any = true;
            left.lose(&record.event_type);
        }
        left
    }

    fn lose(&mut self, event_type: &str) {
        let is_one = |types: &[&str]| types.contains(&event_type);
        let is_first = is_one(&["run.started", "subscription.opened", "run.forked"]);
        self.identity |= is_first;
        self.terms |= is_first || event_type == "run.resumed";
        self.usage |= is_first
            || is_one(&["model.requested", "model.attempted", "tool.requested", "tool.attempted"])
            || is_one(&["operator.returned", "run.recovered", "run.finished", "run.failed"]);
        self.messages |= is_one(&["run.started", "model.responded", "tool.responded"])
            || event_type == "run.reopened";
        self.state |= is_first
            || is_one(&[
                "run.waiting",
                "run.parked",
                "run.reopened",
                "run.recovered",
                "run.resumed",
            ])
            || is_one(&["run.finished", "run.failed", "budget.granted"])
            || is_one(&["approval.granted", "approval.denied", "signal.received"])
            || is_one(&["operator.dispatched", "operator.waiting", "operator.returned"]);
        self.errors |= event_type == "error.stored";
        self.causes |= is_one(&["run.started", "run.reopened", "signal.received"]);
        self.raised |= event_type == "run.reopened";
        self.ends |= is_one(&["run.finished", "run.failed"]);
        self.losses |= is_one(&["run.resumed", "run.reopened"]);
        self.failures |= is_one(&["model.attempted", "model.failed", "tool.attempted"])
            || is_one(&["tool.responded", "hook.failed", "memory.degraded", "run.failed"])
            || is_one(&["error_store.degraded", "budget.exhausted", "guard.tripped"])
            || is_one(&["behavior.failed", "operator.returned", "hook.aborted"]);
    }

    /// Copies the parts that erased events may have changed from the row, so that the rest can be compared.
    pub(super) fn complete(self, folded: &mut RunSummary, row: &RunSummary) {
        if !self.is_any {
            return;
        }
        if self.identity {
            folded.session.clone_from(&row.session);
            folded.agent.clone_from(&row.agent);
            folded.key_id.clone_from(&row.key_id);
            folded.parent.clone_from(&row.parent);
            folded.branch_of.clone_from(&row.branch_of);
            folded.labels.clone_from(&row.labels);
            folded.follows.clone_from(&row.follows);
        }
        if self.terms {
            folded.terms.clone_from(&row.terms);
        }
        if self.state {
            folded.state = row.state;
            folded.outcome = row.outcome;
            folded.reason.clone_from(&row.reason);
            (folded.finished_at, folded.parked) = (row.finished_at, row.parked);
        }
        if self.usage {
            // The records have their times.
            let wall_ms = folded.usage.wall_ms;
            folded.usage = row.usage;
            if !self.ends {
                folded.usage.wall_ms = wall_ms;
            }
            folded.dispatched_model_calls = row.dispatched_model_calls;
        }
        if self.messages {
            folded.messages = row.messages;
        }
        if self.failures {
            folded.last_failure.clone_from(&row.last_failure);
        }
        if self.errors {
            folded.errors = row.errors;
        }
        if self.causes {
            folded.causes.clone_from(&row.causes);
        }
        if self.raised {
            folded.raised.clone_from(&row.raised);
        }
        // The time until a reopening is that of the end before.
        if self.ends {
            folded.reopened = row.reopened;
        }
        if self.losses {
            folded.accepted_loss.clone_from(&row.accepted_loss);
        }
    }
}
