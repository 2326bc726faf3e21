//! Tools that are listed elsewhere: what a run was given, and what has changed since.

use std::sync::Arc;

use backstop_tool::{ToolChanges, ToolListing};
use layer0::JsonText;
use layer0::event::{Event, EventKind, McpToolsChanged, Warning};

use super::Run;
use crate::agent::inner::Inner;
use crate::error::AgentError;

/// What the record says of each source of tools; of those that it says nothing of, that they list what they did
/// when the agent was built.
#[derive(Default)]
pub(super) struct Sources(Vec<Arc<ToolListing>>);

/// Returns what the agent's sources listed when it was built, as the record has it.
pub(super) fn listed(agent: &Inner) -> Option<JsonText> {
    let listings: Vec<&ToolListing> = agent.sources.iter().map(|source| source.listing()).collect();
    let listings = (!listings.is_empty()).then(|| JsonText::of(&listings).ok())??;
    Some(agent.redactor.redact_held_json(listings))
}

impl Sources {
    /// Reads them from the record of a run.
    pub(super) fn recorded(events: &[Event]) -> Self {
        let mut listings = match events.first().map(|event| &event.kind) {
            Some(EventKind::RunStarted(started)) => {
                let mcp = started.mcp.as_ref();
                mcp.and_then(|mcp| mcp.read::<Vec<ToolListing>>().ok()).unwrap_or_default()
            }
            _ => Vec::new(),
        };
        listings.retain(|listing| !listing.server.is_empty());
        Self(listings.into_iter().map(Arc::new).collect())
    }

    /// Takes in what a source lists now, and returns what is different.
    fn take(&mut self, built: &ToolListing, now: &Arc<ToolListing>) -> ToolChanges {
        let known = self.0.iter_mut().find(|known| known.server == now.server);
        let before = known.as_deref().map_or(built, |known| known);
        let changes = before.changes(now);
        if !changes.is_empty() {
            match known {
                Some(known) => *known = Arc::clone(now),
                None => self.0.push(Arc::clone(now)),
            }
        }
        changes
    }
}

impl Run {
    /// Says what each run of the agent says first, and which tools the run was not given because they cannot be
    /// used.
    pub(super) async fn warn_at_start(&mut self) -> Result<(), AgentError> {
        if self.ledger.is_over() {
            return Ok(());
        }
        let agent = Arc::clone(&self.agent);
        let left_out = agent.sources.iter().flat_map(|source| {
            source.left_out().iter().map(|tool| {
                let (name, server, why) = (&tool.origin, source.name(), &tool.why);
                let text = format!("tool `{name}` of MCP server `{server}` is left out: {why}");
                Arc::from(text)
            })
        });
        let said = agent.warnings.iter().cloned().chain(left_out);
        let warnings =
            said.map(|text: Arc<str>| EventKind::from(Warning::new(agent.redactor.redact(&text))));
        let facts: Vec<_> = warnings.map(|warning| self.ledger.fact(warning)).collect();
        match facts.is_empty() {
            true => Ok(()),
            false => self.ledger.step_while_open(facts).await,
        }
    }

    /// Records what the sources list otherwise than the record says.
    pub(super) async fn note_changed_tools(&mut self) -> Result<(), AgentError> {
        let agent = Arc::clone(&self.agent);
        for source in &agent.sources {
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
