//! Adoption of another definition of a run's agent.

use layer0::event::AgentRecord;

use super::{Machine, MachineState};
use crate::definition::{AgentDefinition, CheckedDefinition};
use crate::io::Misuse;
use crate::phase::RunPhase;

impl Machine {
    /// Checks whether the run can adopt another definition of its agent.
    ///
    /// # Errors
    ///
    /// [`Misuse::Agent`] with the reason that it cannot.
    pub fn check_agent(&self, agent: &AgentRecord) -> Result<(), Misuse> {
        self.run.check_adopted(Some(agent)).map(drop)
    }
}

impl MachineState {
    /// Reads the definition that a run is to adopt. The schema of its answers does not change.
    pub(super) fn check_adopted(
        &self,
        agent: Option<&AgentRecord>,
    ) -> Result<Option<CheckedDefinition>, Misuse> {
        let Some(agent) = agent else { return Ok(None) };
        let unusable = |why: &dyn std::fmt::Display| Misuse::Agent(why.to_string());
        let mut definition: AgentDefinition =
            agent.definition.read().map_err(|error| unusable(&error))?;
        if definition.name != self.definition.name {
            return Err(unusable(&format!("it is called `{}`", definition.name)));
        }
        if definition.price.is_none() && self.meter.has_cost_allowance() {
            return Err(unusable(&"its caller bounds the cost, and a model of it has no price"));
        }
        if let Some(whose) = self.definition.walls_lost_in(&definition) {
            return Err(unusable(&format!("{whose} ran within walls, and has none in it")));
        }
        definition.output_schema.clone_from(&self.definition.output_schema);
        CheckedDefinition::new(definition).map(Some).map_err(|error| unusable(&error))
    }

    /// Replaces instructions, tools, limits and budget from here on. The usage until now counts; increases and grants
    /// in addition to the agent's budget stay, and so do grants to child runs. The definition under which a running
    /// call began determines whether the call may be repeated.
    pub(super) fn adopt(&mut self, phase: &RunPhase, definition: CheckedDefinition) {
        for (call, tool) in phase.batch().into_iter().flat_map(|batch| batch.running()) {
            if !self.spec(tool).is_some_and(|spec| spec.idempotent) {
                let dispatches = self.dispatches(tool);
                self.begun_otherwise.entry(call.clone()).or_insert(dispatches);
            }
        }
        self.conversation.adopt(&self.definition, &definition);
        self.meter.adopt(&definition);
        self.definition = definition;
    }
}
