//! A run that goes on with another definition of its agent.

use layer0::event::AgentRecord;

use super::Run;
use crate::definition::{AgentDefinition, CheckedDefinition};
use crate::io::Misuse;

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
        definition.output_schema.clone_from(&self.definition.output_schema);
        CheckedDefinition::new(definition).map(Some).map_err(|error| unusable(&error))
    }

    /// Instructions, tools, limits and budget are the new ones from here on. What was used counts, and what the run
    /// was given beside its agent's budget stays given.
    pub(super) fn adopt(&mut self, definition: CheckedDefinition) {
        self.conversation.adopt(&self.definition, &definition);
        self.meter.adopt(&definition);
        self.definition = definition;
    }
}
