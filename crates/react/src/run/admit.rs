//! Admission of the calls of a batch: gates, lookup, arguments, policy, approval, observers, in this order.

use std::sync::Arc;

use backstop_react_machine::{
    BUDGET_CANCELLED, EffectId, HookPoint, Machine, MachineInput, ToolBatch,
};
use backstop_tool::{ToolError, failed_text};
use layer0::event::{EventKind, ToolRequested};
use layer0::id::CallId;
use layer0::message::ToolCall;

use super::admission::{Admission, AdmissionOutcome, AdmissionVerdict};
use super::{Run, StepPurpose};
use crate::agent::inner::AgentInner;
use crate::effect::{Failing, admit, has_hooks, is_any_held};
use crate::error::AgentError;
use crate::hook::HookContext;
use crate::journal::{Gated, PendingEvents, Step, StopFact};

impl Run {
    /// Decides which calls of a batch may run, and answers the others.
    pub(super) async fn admit(&mut self, batch: ToolBatch) -> Result<(), AgentError> {
        let is_asked_about =
            has_hooks(&self.agent, HookPoint::BeforeTool) || is_any_held(&self.agent, &batch.calls);
        // Arguments that a person approved unchanged have passed the gates; arguments that a person changed have not.
        if (!batch.approved || batch.changed) && is_asked_about {
            let (calls, changed) = (Arc::clone(&batch.calls), batch.changed);
            let admission = Box::new(self.admission(batch));
            self.start(Step::Gates { calls, changed }, StepPurpose::Admission(admission));
            return Ok(());
        }
        let calls = Arc::clone(&batch.calls);
        let gated = calls.iter().cloned().map(Gated::new);
        let admission = self.admission(batch);
        self.look_up(admission, gated).await
    }

    fn admission(&mut self, batch: ToolBatch) -> Admission {
        Admission { batch, verdicts: std::mem::take(&mut self.unused_verdicts) }
    }

    pub(super) async fn gates_answered(
        &mut self,
        admission: Admission,
        gated: Result<Vec<Gated>, (PendingEvents, StopFact)>,
    ) -> Result<(), AgentError> {
        match gated {
            Ok(gated) => self.look_up(admission, gated).await,
            Err((PendingEvents(notes), stop)) => self.stop_by_hook(notes, stop).await,
        }
    }

    /// Looks each call up, and shows the admitted ones to the observers.
    async fn look_up(
        &mut self,
        mut admission: Admission,
        gated: impl IntoIterator<Item = Gated> + Send,
    ) -> Result<(), AgentError> {
        let executions = admission.batch.max_executions.min(self.executions_left());
        let mut left = executions;
        for Gated { call, notes: PendingEvents(notes), skipped, answer } in gated {
            let outcome = match answer {
                Some(answer) => AdmissionOutcome::Answered(answer.0),
                None => self.outcome(&admission.batch, call, skipped, left),
            };
            if matches!(outcome, AdmissionOutcome::Admitted(..)) {
                left -= 1;
            }
            admission.verdicts.push(AdmissionVerdict { notes, outcome });
        }
        if has_hooks(&self.agent, HookPoint::BeforeTool) {
            let admitted = admission.verdicts.iter().filter_map(|verdict| match &verdict.outcome {
                AdmissionOutcome::Admitted(call, _) => Some(call.clone()),
                _ => None,
            });
            let calls: Vec<_> = admitted.collect();
            if !calls.is_empty() {
                self.start(Step::Observers(calls), StepPurpose::Admission(Box::new(admission)));
                return Ok(());
            }
        }
        self.record_verdicts(admission).await
    }

    /// Finds the tool, then checks the arguments, the policy, the machine's counts and the need for an approval.
    fn outcome(
        &self,
        batch: &ToolBatch,
        call: ToolCall,
        skipped: Option<(String, String)>,
        left: u32,
    ) -> AdmissionOutcome {
        let ToolCall { id, name, arguments, .. } = call;
        let machine = self.ledger.machine();
        let skipped = skipped.map_or(Ok(()), |(hook, why)| Err(ToolError::skipped_by(hook, why)));
        let admitted = skipped.and_then(|()| {
            let admitted = admit(&self.agent, &name, arguments)?;
            match machine.repeated_failure(&name, admitted.arguments.text()) {
                Some((code, count)) => return Err(ToolError::repeated_failure(code, count)),
                None if left == 0 => return Err(ToolError::Cancelled),
                None => {}
            }
            let denied = machine.find_denial(&name, admitted.arguments.text());
            // The approval that was just given takes precedence.
            match denied.filter(|_| !batch.approved) {
                Some(denial) => Err(ToolError::approval_denied(&*denial.by, &*denial.reason)),
                None => Ok(admitted),
            }
        });
        match admitted {
            // The budget is checked after the approval.
            Ok(admitted) if admitted.spec().approval && !batch.approved => {
                AdmissionOutcome::Held(id, admitted.arguments.text().clone())
            }
            Ok(admitted) => {
                let arguments = admitted.arguments.text().clone();
                AdmissionOutcome::Admitted(ToolCall::new(id, name, arguments), admitted)
            }
            Err(error) => {
                AdmissionOutcome::Answered(refusal(&self.agent, &self.context, &id, &name, &error))
            }
        }
    }

    pub(super) async fn handle_observations(
        &mut self,
        mut admission: Admission,
        observed: Result<Vec<PendingEvents>, (PendingEvents, StopFact)>,
    ) -> Result<(), AgentError> {
        let is_admitted = |verdict: &&mut AdmissionVerdict| {
            matches!(verdict.outcome, AdmissionOutcome::Admitted(..))
        };
        match observed {
            Ok(observed) => {
                let admitted = admission.verdicts.iter_mut().filter(is_admitted);
                for (verdict, PendingEvents(notes)) in admitted.zip(observed) {
                    verdict.notes.extend(notes);
                }
                self.record_verdicts(admission).await
            }
            Err((PendingEvents(notes), stop)) => {
                let before = admission.verdicts.into_iter().flat_map(|verdict| verdict.notes);
                self.stop_by_hook(before.chain(notes).collect(), stop).await
            }
        }
    }

    /// Records the verdicts on the calls of a batch, in one append.
    async fn record_verdicts(&mut self, mut admission: Admission) -> Result<(), AgentError> {
        let (mut left, at) = (self.executions_left(), self.ledger.at());
        let Self { agent, context, ledger, tools, .. } = self;
        let recorded = ledger.change(|machine: &mut Machine| {
            for AdmissionVerdict { notes, outcome } in admission.verdicts.drain(..) {
                for note in notes {
                    machine.handle(MachineInput::fact(at, note))?;
                }
                let fact = match outcome {
                    // Tools that ran meanwhile may have used the last executions.
                    AdmissionOutcome::Admitted(ToolCall { id, name, .. }, _) if left == 0 => {
                        refusal(agent, context, &id, &name, &ToolError::Cancelled)
                    }
                    AdmissionOutcome::Admitted(ToolCall { id, name, arguments, .. }, admitted) => {
                        left -= 1;
                        tools.add_admitted(id.clone(), admitted);
                        ToolRequested::new(id, name, arguments, machine.next_execution()).into()
                    }
                    AdmissionOutcome::Answered(answer) => answer,
                    AdmissionOutcome::Held(call_id, arguments) => {
                        machine.hold(at, &call_id, arguments)?;
                        continue;
                    }
                };
                machine.handle(MachineInput::fact(at, fact))?;
            }
            Ok(())
        });
        recorded.await?;
        self.unused_verdicts = admission.verdicts;
        Ok(())
    }

    /// Runs a tool again that was running when the process died.
    pub(super) async fn rerun(&mut self, id: EffectId, call_id: &CallId) -> Result<(), AgentError> {
        let mut run = self.recorded_execution(call_id)?;
        // The tool and the policy may have changed since.
        match admit(&self.agent, &run.tool, run.arguments.clone()) {
            Ok(admitted) => {
                self.tools.add_admitted(call_id.clone(), admitted);
                run.id = id;
                self.tools.queue(run);
                self.start_tools().await
            }
            Err(error) => {
                let text = failed_text(&run.tool, &error);
                let failing = Failing::new(&self.agent, &self.context, call_id, &run.tool, 0);
                let answer = self.ledger.answer(id, failing.respond(&error, &text));
                // Its child runs cannot be resumed either.
                let ended = self.end_call_dispatches(call_id).await?;
                let resumed = self.approvals.take_resumed().map(EventKind::from);
                let ended = ended.into_iter().map(EventKind::from);
                let facts = resumed.into_iter().chain(ended).map(|fact| self.ledger.fact(fact));
                let facts: Vec<_> = facts.chain([answer]).collect();
                self.ledger.step(facts).await
            }
        }
    }
}

/// Returns the answer of a call that does not run.
fn refusal(
    agent: &AgentInner,
    context: &HookContext,
    id: &CallId,
    name: &Arc<str>,
    error: &ToolError,
) -> EventKind {
    let text = match error.kind() {
        ToolError::NotFound(name) => agent.tools.missing_text(name),
        ToolError::Cancelled => BUDGET_CANCELLED.to_owned(),
        _ => failed_text(name, error),
    };
    Failing::new(agent, context, id, name, 0).respond(error, &text)
}
