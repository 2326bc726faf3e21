//! Decisions that are due, and whether an event is the one.

use layer0::event::{EventKind, WaitFor};
use layer0::id::CallId;

use super::model::{Judge, RunEnd};
use super::repeats::GuardTrip;

/// A decision that has to come next.
#[derive(Debug, Clone)]
pub(super) enum Due {
    Answer(DueAnswer),
    /// The approval that a running call asked for is closed.
    Closed {
        approval: String,
        reason: String,
    },
    Exhausted {
        budget: &'static str,
        limit: u64,
        used: u64,
    },
    Guard(GuardTrip),
    ModelRequested {
        call: u32,
        messages: u32,
    },
    Waiting {
        r#for: WaitFor,
        approvals: Vec<String>,
    },
    End(RunEnd),
}

/// An answer that the machine owes a call.
#[derive(Debug, Clone)]
pub(super) struct DueAnswer {
    pub(super) call: CallId,
    /// The code of the failure; none for a call that happened.
    pub(super) reason: Option<&'static str>,
    /// Words that the model has to read.
    pub(super) text: &'static str,
}

impl Due {
    pub(super) fn is_met(&self, judge: &Judge, event: &EventKind) -> bool {
        match (self, event) {
            (Self::Answer(due), EventKind::ToolResponded(it)) => {
                let reason = it.error.as_ref().map(|error| error.reason.as_str());
                it.call_id == due.call
                    && it.ok == due.reason.is_none()
                    && reason == due.reason
                    && it.output.get().contains(due.text)
            }
            (Self::Closed { approval, reason }, EventKind::ApprovalDenied(it)) => {
                it.approval_id.as_str() == approval && it.reason.as_str() == reason
            }
            (Self::Exhausted { budget, limit, used }, EventKind::BudgetExhausted(it)) => {
                it.reason.as_str() == format!("budget.{budget}")
                    && &*it.dimension == *budget
                    && it.limit.as_u64() == Some(*limit)
                    && it.used.as_u64() == Some(*used)
            }
            (
                Self::Guard(GuardTrip { reason, count, limit, evidence }),
                EventKind::GuardTripped(it),
            ) => {
                let shown = it.signature.as_ref().or(it.text_hash.as_ref());
                it.reason.as_str() == *reason
                    && (it.count, it.limit) == (*count, *limit)
                    && shown.map(|shown| &**shown) == evidence.as_deref()
            }
            (Self::ModelRequested { call, messages }, EventKind::ModelRequested(it)) => {
                (it.call, it.messages) == (*call, *messages)
            }
            (Self::Waiting { r#for, approvals }, EventKind::RunWaiting(it)) => {
                let open: Vec<_> = it.approvals.iter().map(|id| id.as_str().to_owned()).collect();
                it.r#for == *r#for && open == *approvals
            }
            (Self::End(due), EventKind::RunFinished(it)) => {
                it.outcome.as_str() == due.outcome
                    && it.reason.as_ref().map(|reason| reason.as_str()) == due.reason.as_deref()
                    && *it.output == *due.output
                    && judge.agrees_with(&it.usage)
            }
            (Self::End(due), EventKind::RunFailed(it)) => {
                due.outcome == "failed"
                    && Some(it.reason.as_str()) == due.reason.as_deref()
                    && judge.agrees_with(&it.usage)
            }
            _ => false,
        }
    }
}

impl Judge {
    /// Returns whether the usage at an end equals that of the history.
    fn agrees_with(&self, usage: &layer0::usage::Usage) -> bool {
        let used = self.used();
        (u64::from(usage.model_attempts), u64::from(usage.tool_calls))
            == (used.attempts, used.executions)
            && (usage.input_tokens, usage.output_tokens) == (used.input_tokens, used.output_tokens)
            && usage.total_tokens == used.input_tokens + used.output_tokens
            && usage.wall_ms == self.wall_ms(None)
    }
}
