//! A run that goes on with another definition of its agent.

use layer0::event::AgentRecord;

use super::{Machine, Run};
use crate::definition::{AgentDefinition, CheckedDefinition};
use crate::io::Misuse;
use crate::phase::Phase;

impl Machine {
    /// Can the run go on with another definition of its agent?
    ///
    /// # Errors
    ///
    /// [`Misuse::Agent`], saying why not.
    pub fn check_agent(&self, agent: &AgentRecord) -> Result<(), Misuse> {
        self.run.check_adopted(Some(agent)).map(drop)
    }
}

impl Run {
    /// Reads the definition that a run is to go on with. The schema of its answers stays the run's own.
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

    /// Instructions, tools, limits and budget are the new ones from here on. What was used counts, and what the run
    /// was given beside its agent's budget stays given, as does what it gave. Whether a call that is running may be
    /// repeated is for the definition to say under which it began.
    pub(super) fn adopt(&mut self, phase: &Phase, definition: CheckedDefinition) {
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
