//! How a run begins: claimed, behind the conversation it goes on with.

use std::sync::Arc;

use event_log::{LogError, RunWriter};
use layer0::event::RunStarted;
use react_machine::{DefinitionError, Input, Machine};

use crate::digest::record;
use crate::driver::Driver;
use crate::error::AgentError;
use crate::typed::output_check;

/// How often a run that was overtaken joins its conversation again; each time another run began.
const MAX_JOINS: u32 = 64;

impl Driver {
    /// Makes the machine of this run, for the agent as the request wants it.
    fn machine(&mut self) -> Result<Machine, AgentError> {
        let unusable = |error: DefinitionError| AgentError::Internal(error.into());
        let mut machine = self.agent.machine().map_err(unusable)?;
        if let Some(schema) = &self.request.output_schema {
            let misfit = |error| AgentError::InputValidation(format!("output schema: {error}"));
            let check = output_check(schema).map_err(misfit)?;
            let mut definition = (*self.definition).clone();
            definition.output_schema = Some(Arc::clone(schema));
            self.record = record(&definition);
            self.definition = Arc::new(definition);
            machine = Machine::new(Arc::clone(&self.definition))
                .map_err(unusable)?
                .checking_output(check);
        }
        Ok(machine.of_run(self.run.clone()).at_depth(self.request.depth))
    }

    /// Claims the run, and makes its machine for the conversation as it is.
    pub(crate) async fn claim_and_join(&mut self) -> Result<Box<Machine>, AgentError> {
        if let Some(log) = &self.agent.log {
            self.claim = Some(log.claim(&self.run).await.map_err(AgentError::NotStarted)?);
        }
        self.join().await
    }

    /// The machine is on the heap, so that it is not moved from step to step.
    async fn join(&mut self) -> Result<Box<Machine>, AgentError> {
        let machine = Box::new(self.machine()?);
        let said = self.join_session().await.map_err(AgentError::before_the_start)?;
        Ok(Box::new(machine.after(said)))
    }

    /// Writes the first event. Whoever was overtaken in its conversation joins it again.
    pub(crate) async fn start(
        &mut self,
        mut machine: Box<Machine>,
    ) -> Result<Box<Machine>, (Box<Machine>, AgentError)> {
        let mut joins_left = MAX_JOINS;
        loop {
            match self.begin(&mut machine).await {
                Ok(()) => return Ok(machine),
                Err(AgentError::NotStarted(LogError::SessionBusy { .. })) if joins_left > 0 => {
                    joins_left -= 1;
                }
                Err(error) => return Err((machine, error)),
            }
            if let Some(log) = &self.agent.log {
                self.writer = RunWriter::new(Arc::clone(log), self.run.clone());
            }
            self.effects.clear();
            self.finish = None;
            machine = match self.join().await {
                Ok(machine) => machine,
                Err(error) => return Err((machine, error)),
            };
        }
    }

    async fn begin(&mut self, machine: &mut Machine) -> Result<(), AgentError> {
        let started = RunStarted {
            input: self.agent.redactor.redact_held(&self.request.input).into(),
            images: Arc::clone(&self.request.images),
            session: self.session.clone(),
            agent: self.record.clone(),
            parent: self.request.parent.clone(),
            follows: self.follows.clone(),
        };
        let now = self.agent.clock.now();
        let at = self.not_before.map_or(now, |at| at.max(now));
        match self.step(machine, [Input::fact(at, started)]).await {
            Err(AgentError::Storage(busy @ LogError::SessionBusy { .. })) => {
                Err(AgentError::NotStarted(busy))
            }
            result => result,
        }
    }
}
