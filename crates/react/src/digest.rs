//! What a record says of the agent that ran.

use std::sync::Arc;

use layer0::JsonText;
use layer0::event::AgentRecord;
use react_machine::AgentDefinition;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Returns what `run.started` says of an agent: its definition, and the SHA-256 of that as compact
/// JSON with sorted keys.
pub(crate) fn record(definition: &AgentDefinition) -> AgentRecord {
    // Our own definitions always serialise: their maps have string keys.
    let text = JsonText::of(definition).unwrap_or_default();
    AgentRecord {
        name: Arc::clone(&definition.name),
        digest: digest(text.to_value()).into(),
        definition: text,
    }
}

/// Returns the SHA-256, in hex, of a definition as compact JSON with sorted keys.
pub(crate) fn digest(mut definition: Value) -> String {
    definition.sort_all_objects();
    let digest = Sha256::digest(definition.to_string().as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
