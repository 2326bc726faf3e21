//! Scripted people.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use config::{ApprovalVerdict, ScriptedDecision};
use react::{ApprovalRequest, Approver, Decision};

/// Decides what the scenario says, in the order it is asked; then there is no one to ask.
pub(crate) struct ScriptedApprover {
    decisions: Vec<ScriptedDecision>,
    next: AtomicUsize,
}

impl ScriptedApprover {
    pub(crate) const fn new(decisions: Vec<ScriptedDecision>) -> Self {
        Self { decisions, next: AtomicUsize::new(0) }
    }
}

#[async_trait]
impl Approver for ScriptedApprover {
    async fn decide(&self, _: &ApprovalRequest) -> Option<Decision> {
        let scripted = self.decisions.get(self.next.fetch_add(1, Ordering::Relaxed))?;
        let decision = match scripted.verdict {
            ApprovalVerdict::Approve => Decision::approve(&scripted.by),
            ApprovalVerdict::Deny => {
                let reason = scripted.reason.clone().unwrap_or_default();
                return Some(Decision::deny(&scripted.by, reason));
            }
        };
        Some(match &scripted.reason {
            Some(reason) => decision.because(reason),
            None => decision,
        })
    }
}
