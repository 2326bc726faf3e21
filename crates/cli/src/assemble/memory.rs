//! Construction of an agent's memory from `[memory]`.

use std::path::Path;
use std::sync::Arc;

use crate::store::AnyDatabase;
use backstop_config::{AgentFile, MemoryKind, MemoryScope};
use backstop_react::{AgentBuilder, RecentMemory, StateMemory};
use backstop_redact::Redactor;
use backstop_state::{MemoryEntries, MemoryStateStore};
use layer0::StateStore;
use layer0::state::Scope;

use super::name;

/// Number of answers that a memory of this process keeps.
const RECENT: usize = 100;

/// Returns the memory entries of the agent and its tools.
pub(crate) fn entries(
    file: &AgentFile,
    path: &Path,
    database: Option<&AnyDatabase>,
    redactor: &Redactor,
) -> MemoryEntries {
    entries_in(state(database, redactor), file, path)
}

/// Returns the state store of the agent: in the database, or in this process.
pub(super) fn state(database: Option<&AnyDatabase>, redactor: &Redactor) -> Arc<dyn StateStore> {
    match database {
        Some(database) => database.redacted_state(redactor),
        None => Arc::new(MemoryStateStore::new().redactor(redactor.clone())),
    }
}

/// Returns the memory entries as [`entries`] does, in this store.
pub(super) fn entries_in(
    store: Arc<dyn StateStore>,
    file: &AgentFile,
    path: &Path,
) -> MemoryEntries {
    match file.memory.unwrap_or_default().scope {
        MemoryScope::Agent => MemoryEntries::with_scope(store, Scope::Agent(name(file, path))),
        MemoryScope::Global => MemoryEntries::with_scope(store, Scope::Global),
        _ => MemoryEntries::of_session(store),
    }
}

/// Adds the memory of the file to the agent.
pub(super) fn remembering(
    agent: AgentBuilder,
    file: &AgentFile,
    entries: &MemoryEntries,
) -> AgentBuilder {
    match file.memory.map(|memory| memory.kind) {
        None => agent,
        Some(MemoryKind::Recent) => agent.memory(RecentMemory::new(RECENT)),
        Some(_) => agent.memory(StateMemory::new(entries.clone())),
    }
}
