//! Steps that are open in the record and that the code does not wait for when the run ends: they were suspended, or a
//! process that died began them and the code did not request them again.

use std::sync::Arc;

use backstop_event_log::{EventLog, LogError, RunSummary};
use backstop_tool::ToolError;
use layer0::Orchestrator;
use layer0::error::{OperatorError, OrchError};
use layer0::id::RunId;
use layer0::operator::{Answer, Context, Signal, Signals, Task};
use serde_json::Value;

use super::Episode;
use super::steps::dispatch_target;
use super::underway::{OpenStep, Settled};
use crate::books::DispatchOpening;
use crate::workflow::line::StepTarget;

impl Episode {
    /// Resumes such steps to end them, so that no child run is left open after the run has ended.
    pub(super) fn end_others(&mut self) {
        let Some(orchestrator) = self.orchestrator.clone() else { return };
        let left = std::mem::take(&mut self.underway.left);
        let steps = self.ledger.progress().steps.values().filter(|step| step.is_open());
        let others: Vec<_> = steps
            .filter(|step| !self.underway.is_open(&step.dispatched.run))
            .map(|step| (step.dispatched.clone(), step.total_allowance()))
            .collect();
        for (step, given) in others {
            let (run, operator) = (step.run, step.operator);
            let at_hand = left.iter().find(|left| left.run == run);
            let target = at_hand.map(|left| left.target.clone());
            let target = target.unwrap_or_else(|| StepTarget::Named(Arc::clone(&operator)));
            let signals = Signals::default();
            signals.push(Signal::cancel());
            let opening = DispatchOpening {
                run: run.clone(),
                signals: signals.clone(),
                at_most: step.at_most.as_deref().copied(),
                is_recorded: !step.unrecorded,
            };
            self.books.begin_again(opening, given);
            let mut context = self.below(&orchestrator);
            (context.run, context.signals) = (Some(run.clone()), signals.clone());
            (context.goes_on, context.is_recorded) = (true, true);
            (context.attempt, context.allowance) = (step.attempt, given);
            context.caller = Some(self.caller(&run));
            let (log, orchestrator) = (Arc::clone(&self.log), Arc::clone(&orchestrator));
            let (unrecorded, answer) = (step.unrecorded, None);
            let open = OpenStep { run, operator, target, unrecorded, signals, answer };
            self.underway.end_other(open, |run, target| async move {
                let ended = match unrecorded {
                    true => Err(interrupted_error()),
                    false => end(&*log, &*orchestrator, (run.clone(), target), context).await,
                };
                Settled::Ended(run, ended)
            });
        }
    }
}

/// Ends a run that keeps a record; a run without one was not started.
async fn end(
    log: &dyn EventLog,
    orchestrator: &dyn Orchestrator,
    (run, target): (RunId, StepTarget),
    context: Context,
) -> Result<Answer, OrchError> {
    let found: Result<Option<RunSummary>, LogError> = log.summary(&run).await;
    match found {
        Ok(Some(_)) => {
            dispatch_target(orchestrator, target, Task::json(Value::Null), context).await
        }
        Ok(None) => Err(interrupted_error()),
        Err(error) => Err(OperatorError::from_failure(error).into()),
    }
}

fn interrupted_error() -> OrchError {
    OperatorError::from_failure(ToolError::Interrupted).into()
}
