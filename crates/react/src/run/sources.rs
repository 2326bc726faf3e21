//! Tool sources: tools that were left out of a run, and later changes of the listings.

use std::sync::Arc;

use layer0::event::{EventKind, McpToolsChanged, Warning};

use super::Run;
use crate::error::AgentError;

impl Run {
    /// Records the agent's warnings, and a warning for each tool that a source left out because it cannot be used.
    pub(super) async fn warn_at_start(&mut self) -> Result<(), AgentError> {
        if self.ledger.is_over() {
            return Ok(());
        }
        let agent = Arc::clone(&self.agent);
        let left_out = agent.sources().iter().flat_map(|source| {
            source.left_out().iter().map(|tool| {
                let (name, server, why) = (&tool.origin, source.name(), &tool.why);
                let text = format!("tool `{name}` of MCP server `{server}` is left out: {why}");
                Arc::from(text)
            })
        });
        let lists = agent.sources().iter().flat_map(|source| {
            let server = source.name();
            let warnings = source.warnings().iter();
            warnings.map(move |what| Arc::from(format!("MCP server `{server}`: {what}")))
        });
        let said = agent.warnings().iter().cloned().chain(left_out).chain(lists);
        let warnings =
            said.map(|text: Arc<str>| EventKind::from(Warning::new(agent.redactor.redact(&text))));
        let facts: Vec<_> = warnings.map(|warning| self.ledger.fact(warning)).collect();
        match facts.is_empty() {
            true => Ok(()),
            false => self.ledger.step_while_open(facts).await,
        }
    }

    /// Records the differences between the sources' current listings and the recorded ones.
    pub(super) async fn note_changed_tools(&mut self) -> Result<(), AgentError> {
        let agent = Arc::clone(&self.agent);
        for source in agent.sources() {
            let changes = self.sources.take(source.listing(), &source.current());
            if !changes.is_empty() {
                let shown = |names: Vec<String>| -> Arc<[Arc<str>]> {
                    names.iter().map(|name| agent.redactor.redact_held(name).into()).collect()
                };
                let mut changed = McpToolsChanged::new(agent.redactor.redact_held(source.name()));
                changed.added = shown(changes.added);
                changed.removed = shown(changes.removed);
                changed.changed = shown(changes.changed);
                let changed = self.ledger.fact(changed);
                self.ledger.step_while_open([changed]).await?;
            }
        }
        Ok(())
    }
}
