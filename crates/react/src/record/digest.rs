//! The agent that ran, as its record describes it.

use std::sync::Arc;

use backstop_event_log::text_digest;
use backstop_react_machine::AgentDefinition;
use layer0::event::AgentRecord;
use layer0::{JsonText, ToolSpec};

/// The description of an agent in `run.started`.
#[derive(Clone)]
pub(crate) struct Resolved {
    pub(crate) agent: AgentRecord,
    /// Digest of the whole definition.
    pub(crate) definition_digest: Arc<str>,
}

/// Returns the description of an agent in `run.started`: its definition, and the digest that identifies the agent, both
/// as compact JSON with sorted keys. Values that a run requests itself are in neither, and tools that are listed
/// elsewhere are not in the digest.
pub(crate) fn record(definition: &AgentDefinition) -> Resolved {
    let text = |definition: &AgentDefinition| {
        JsonText::from_value(definition)
            .expect("schemas and sources are nested less deeply than a record may be")
    };
    let mut recorded = definition.clone();
    recorded.output_schema = None;
    let whole = text(&recorded);
    (recorded.price, recorded.runtime) = (None, JsonText::default());
    let definition_digest = digest(&whole).into();
    if recorded.tools.iter().any(is_listed_elsewhere) {
        recorded.tools =
            recorded.tools.iter().filter(|tool| !is_listed_elsewhere(tool)).cloned().collect();
    }
    let agent = AgentRecord::new(Arc::clone(&definition.name), digest(&text(&recorded)), whole);
    Resolved { agent, definition_digest }
}

/// Returns whether the tool is listed by another server, whose description may change.
pub(crate) fn is_listed_elsewhere(tool: &ToolSpec) -> bool {
    tool.origin.is_some()
}

/// Returns the SHA-256, in hex, of a definition, whose text is compact and has sorted keys.
pub(crate) fn digest(definition: &JsonText) -> String {
    text_digest(definition.get())
}
