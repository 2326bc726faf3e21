//! Recorded listings of tool sources.

use std::sync::Arc;

use backstop_tool::{ToolChanges, ToolListing};
use layer0::JsonText;
use layer0::event::{Event, EventKind};

use crate::agent::inner::AgentInner;

/// The recorded listing of each tool source. A source without one listed the same tools as when the agent was built.
#[derive(Default)]
pub(super) struct Sources(Vec<Arc<ToolListing>>);

/// Returns the listings of the agent's sources at its build, in their recorded form.
pub(super) fn collect_listings(agent: &AgentInner) -> Option<JsonText> {
    let listings: Vec<&ToolListing> =
        agent.sources().iter().map(|source| source.listing()).collect();
    let listings = (!listings.is_empty()).then(|| JsonText::from_value(&listings).ok())??;
    Some(agent.redactor.redact_held_json(listings))
}

impl Sources {
    /// Reads the listings from the record of a run.
    pub(super) fn from_events(events: &[Event]) -> Self {
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

    /// Updates the listing of a source, and returns the differences.
    pub(super) fn take(&mut self, built: &ToolListing, now: &Arc<ToolListing>) -> ToolChanges {
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
