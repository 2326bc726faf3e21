//! Model calls: attempt by attempt, each recorded before the next.

use std::sync::Arc;

use backstop_react_machine::{AgentDefinition as Definition, EffectId, MachineInput, ModelCall};
use layer0::event::{ModelAttempted, RunParked, Warning};

use super::{Run, StepPurpose};
use crate::error::AgentError;
use crate::journal::{AttemptEnd, ModelAttempt, Parking, Step};

impl Run {
    pub(super) fn ask_model(&mut self, call: ModelCall) {
        self.asking.begin(call.id);
        let messages = self.ledger.machine().transcript().clone();
        let Definition { tools, output_schema, .. } = &*self.definition;
        let labels = Arc::clone(self.ledger.machine().labels());
        let (tools, schema) = (Arc::clone(tools), output_schema.clone());
        let attempt = ModelAttempt::first(call, messages, tools, schema, labels);
        self.start(Step::Attempt(Box::new(attempt)), StepPurpose::Attempt);
    }

    pub(super) async fn attempt_ended(&mut self, end: AttemptEnd) -> Result<(), AgentError> {
        let Some(id) = self.asking.effect() else { return Ok(()) };
        match end {
            AttemptEnd::NotBegun => Ok(()),
            AttemptEnd::Limited(exhausted) => {
                let exhausted = self.ledger.answer(id, *exhausted);
                self.ledger.step([exhausted]).await
            }
            AttemptEnd::Unreserved(failed) => {
                let failed = self.ledger.answer(id, *failed);
                self.ledger.step([failed]).await
            }
            AttemptEnd::Cut(attempted) => self.record_attempt(*attempted).await,
            AttemptEnd::Answered(answered) => {
                let (attempted, responded) = *answered;
                self.read_before_the_end(&responded).await?;
                let mut facts = self.attempt_facts(id, attempted);
                facts.push(self.ledger.answer(id, responded));
                self.ledger.step(facts).await
            }
            AttemptEnd::Again(attempted, delay, attempt) => {
                self.record_attempt(*attempted).await?;
                if delay.is_zero() {
                    self.start(Step::Attempt(attempt), StepPurpose::Attempt);
                } else {
                    self.asking.wait(self.ledger.at().after(delay), attempt);
                }
                Ok(())
            }
            AttemptEnd::Parked(parked) => {
                let (attempted, Parking { wait, reason, message }) = *parked;
                let parked = RunParked::new(self.ledger.at().after(wait), reason, message);
                let mut facts = self.attempt_facts(id, attempted);
                facts.push(self.ledger.answer(id, parked));
                self.ledger.step(facts).await
            }
            AttemptEnd::Failed { attempted, is_limited } => {
                let (attempted, failed) = *attempted;
                if is_limited {
                    // The exhausted budget stopped the run then, not the failed attempt.
                    self.record_attempt(attempted).await?;
                    self.ledger.tick().await?;
                    if !self.ledger.machine().is_asking(id) {
                        return Ok(());
                    }
                    let failed = self.ledger.answer(id, failed);
                    return self.ledger.step([failed]).await;
                }
                let mut facts = self.attempt_facts(id, attempted);
                facts.push(self.ledger.answer(id, failed));
                self.ledger.step(facts).await
            }
        }
    }

    pub(super) async fn record_attempt(
        &mut self,
        attempted: ModelAttempted,
    ) -> Result<(), AgentError> {
        let Some(id) = self.asking.effect() else { return Ok(()) };
        let facts = self.attempt_facts(id, attempted);
        self.ledger.step(facts).await
    }

    /// Returns the entries of an attempt, with a warning for the run's first attempt with estimated tokens.
    fn attempt_facts(&self, id: EffectId, attempted: ModelAttempted) -> Vec<MachineInput> {
        let is_first = attempted.usage_estimated && !self.ledger.machine().has_estimates();
        let warning = is_first.then(|| {
            let message = format!(
                "`{}` does not report all tokens it uses: budgets, limits and cost go by an estimate",
                attempted.provider
            );
            tracing::warn!(run = %self.context.run, "{message}");
            self.ledger.fact(Warning::new(message))
        });
        std::iter::once(self.ledger.answer(id, attempted)).chain(warning).collect()
    }
}
