//! Scripted people.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::Clock;
use backstop_config::{ApprovalVerdict, ScriptedDecision};
use backstop_react::{ApprovalRequest, Approver, Decision};

use crate::marks::{Marks, ReachMark};

/// Approver that returns the decisions of the scenario in order; further approvals stay open. Clones share the
/// position.
#[derive(Clone)]
pub(crate) struct ScriptedApprover {
    decisions: Arc<[(ScriptedDecision, ReachMark)]>,
    next: Arc<AtomicUsize>,
    clock: Arc<dyn Clock>,
}

impl ScriptedApprover {
    pub(crate) fn new(
        decisions: &[ScriptedDecision],
        marks: &Marks,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let marked = decisions.iter().enumerate().map(|(index, decision)| {
            let part = format!("decision {} of {}", index + 1, decisions.len());
            (decision.clone(), marks.add(part))
        });
        Self { decisions: marked.collect(), next: Arc::default(), clock }
    }
}

#[async_trait]
impl Approver for ScriptedApprover {
    async fn decide(&self, _: &ApprovalRequest) -> Option<Decision> {
        let (scripted, mark) = self.decisions.get(self.next.fetch_add(1, Ordering::Relaxed))?;
        mark.reach();
        if let Some(ms) = scripted.delay_ms {
            self.clock.sleep(Duration::from_millis(ms)).await;
        }
        let mut decision = match scripted.verdict {
            ApprovalVerdict::Approve => Decision::approve(&scripted.by),
            ApprovalVerdict::Deny => {
                let reason = scripted.reason.clone().unwrap_or_default();
                return Some(Decision::deny(&scripted.by, reason));
            }
        };
        if let Some(arguments) = &scripted.arguments {
            decision = decision.with_arguments(arguments);
        }
        if let Some(data) = &scripted.data {
            decision = decision.with_data(data);
        }
        Some(match &scripted.reason {
            Some(reason) => decision.because(reason),
            None => decision,
        })
    }
}
