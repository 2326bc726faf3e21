//! What a record says of the agent that ran.

use std::sync::Arc;

use layer0::JsonText;
use layer0::event::AgentRecord;
use react_machine::AgentDefinition;
use sha2::{Digest, Sha256};

/// Returns what `run.started` says of an agent: its definition, and the SHA-256 of that as compact
/// JSON with sorted keys.
pub(crate) fn record(definition: &AgentDefinition) -> AgentRecord {
    let text = JsonText::of(definition)
        .expect("schemas and sources are nested less deeply than a record may be");
    AgentRecord {
        name: Arc::clone(&definition.name),
        digest: digest(&text).into(),
        definition: text,
    }
}

/// Returns the SHA-256, in hex, of a definition, whose text is compact and has sorted keys.
pub(crate) fn digest(definition: &JsonText) -> String {
    digest_of(definition.get())
}

/// Returns the SHA-256 of a text, in hex.
pub(crate) fn digest_of(text: &str) -> String {
    let digest = Sha256::digest(text);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
