//! The parts of a summary that erased events changed.

use crate::{Record, RunSummary};

/// The parts of a summary that erased events may have changed.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct LostParts {
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

#[cfg(test)]
mod tests {
    use layer0::event::{Actor, Cause, EVENT_TYPES, Hash, LostTail};
    use layer0::stop::Outcome;
    use layer0::usage::BudgetIncrease;
    use layer0::{Code, Timestamp};
    use serde_json::json;

    use super::*;
    use crate::{AcceptedLoss, LastFailure, Payload, RunState, Terms};

    /// Returns a row that differs from an empty one in every part that an event can change.
    fn row() -> RunSummary {
        let mut row = RunSummary::new("run_1".into());
        (row.session, row.agent) = ("s".into(), "a".into());
        (row.parent, row.branch_of) = (Some("p".into()), Some("b".into()));
        (row.follows, row.key_id) = (Some("f".into()), Some("k".into()));
        row.labels = std::sync::Arc::new([("a".into(), "b".into())].into());
        row.terms = Terms::new((&json!({ "budget": {} })).into());
        (row.state, row.outcome) = (RunState::Failed, Some(Outcome::Failed));
        row.reason = Some(Code::new("a.b"));
        let at = Timestamp::from_millis(1);
        (row.finished_at, row.parked) = (Some(at), Some((at, at)));
        (row.usage.tool_calls, row.usage.wall_ms) = (1, 1);
        row.dispatched_model_calls = 1;
        (row.messages, row.errors) = (1, 1);
        row.last_failure = Some(LastFailure::new(1, Code::new("a.b")));
        row.causes = vec![(1, at, Cause::new("s", "r", 1, 1))];
        row.raised = Some(Box::new(BudgetIncrease::new().tool_calls(1)));
        row.reopened = Some((at, 1));
        let tail = LostTail::new(1, Hash::default());
        row.accepted_loss = Some(Box::new(AcceptedLoss { tail, count: 1 }));
        row
    }

    /// Returns the parts of the row that are copied if an event of this type was erased.
    fn copied(event_type: &'static str) -> String {
        let payload = Payload::Erased(Hash::default());
        let record = Record::new(1, Timestamp::default(), event_type, Actor::Runtime, payload);
        let (mut folded, row) = (RunSummary::new("run_1".into()), row());
        LostParts::without(&[&record]).complete(&mut folded, &row);
        let fields = [
            ("session", folded.session == row.session),
            ("agent", folded.agent == row.agent),
            ("parent", folded.parent == row.parent),
            ("branch_of", folded.branch_of == row.branch_of),
            ("follows", folded.follows == row.follows),
            ("key_id", folded.key_id == row.key_id),
            ("labels", folded.labels == row.labels),
            ("terms", folded.terms == row.terms),
            ("state", folded.state == row.state),
            ("outcome", folded.outcome == row.outcome),
            ("reason", folded.reason == row.reason),
            ("finished_at", folded.finished_at == row.finished_at),
            ("parked", folded.parked == row.parked),
            ("usage", folded.usage.tool_calls == row.usage.tool_calls),
            ("wall_ms", folded.usage.wall_ms == row.usage.wall_ms),
            ("dispatched", folded.dispatched_model_calls == row.dispatched_model_calls),
            ("messages", folded.messages == row.messages),
            ("errors", folded.errors == row.errors),
            ("failure", folded.last_failure == row.last_failure),
            ("causes", folded.causes == row.causes),
            ("raised", folded.raised == row.raised),
            ("reopened", folded.reopened == row.reopened),
            ("loss", folded.accepted_loss == row.accepted_loss),
        ];
        let names: Vec<&str> =
            fields.iter().filter(|(_, same)| *same).map(|(name, _)| *name).collect();
        names.join(" ")
    }

    const IDENTITY: &str = "session agent parent branch_of follows key_id labels terms";
    const STATE: &str = "state outcome reason finished_at parked";

    /// Spec: D13. Only what an erased event changed may differ from the fold of the others.
    #[test]
    fn erased_event_loses_what_it_changed() {
        let end = format!("{STATE} usage wall_ms dispatched");
        let expected = |event_type: &str| match event_type {
            "run.started" => format!("{IDENTITY} {STATE} usage dispatched messages causes"),
            "run.forked" | "subscription.opened" => format!("{IDENTITY} {STATE} usage dispatched"),
            "run.resumed" => format!("terms {STATE} loss"),
            "run.reopened" => format!("{STATE} messages causes raised loss"),
            "run.recovered" => format!("{STATE} usage dispatched"),
            "run.finished" => format!("{end} reopened"),
            "run.failed" => format!("{end} failure reopened"),
            "operator.returned" => format!("{STATE} usage dispatched failure"),
            "signal.received" => format!("{STATE} causes"),
            "run.waiting"
            | "run.parked"
            | "approval.granted"
            | "approval.denied"
            | "operator.dispatched"
            | "operator.waiting"
            | "budget.granted" => STATE.to_owned(),
            "model.requested" | "tool.requested" => "usage dispatched".to_owned(),
            "model.attempted" | "tool.attempted" => "usage dispatched failure".to_owned(),
            "model.responded" => "messages".to_owned(),
            "tool.responded" => "messages failure".to_owned(),
            "model.failed"
            | "hook.failed"
            | "hook.aborted"
            | "memory.degraded"
            | "error_store.degraded"
            | "budget.exhausted"
            | "guard.tripped"
            | "behavior.failed" => "failure".to_owned(),
            "error.stored" => "errors".to_owned(),
            _ => String::new(),
        };
        for event_type in EVENT_TYPES {
            assert_eq!(copied(event_type), expected(event_type), "{event_type}");
        }
        let (mut folded, row) = (RunSummary::new("run_1".into()), row());
        LostParts::without(&[]).complete(&mut folded, &row);
        assert_eq!(folded, RunSummary::new("run_1".into()), "nothing was erased");
    }
}
