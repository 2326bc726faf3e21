//! `[memory]` of an agent file.

use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;

use crate::ConfigError;
use crate::parse::parse;

/// What an agent remembers from one run to the next; nothing without the table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct AgentMemoryTable {
    /// Where it is kept.
    pub kind: MemoryKind,
    /// Who reads it.
    pub scope: MemoryScope,
}

/// Where a memory is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MemoryKind {
    /// In this process.
    Recent,
    /// In the store.
    #[default]
    State,
}

/// Who reads a memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MemoryScope {
    /// Runs of the agent of this name.
    Agent,
    /// Every agent of the store.
    Global,
    /// Runs of the same session.
    #[default]
    Session,
}

/// Where `scope` stands.
#[derive(Deserialize)]
struct Scoped {
    memory: Option<ScopedMemory>,
}

#[derive(Deserialize)]
struct ScopedMemory {
    scope: Option<Spanned<IgnoredAny>>,
}

/// Refuses another scope than the session's for a memory of this process.
pub(crate) fn check_memory(
    path: &Path,
    text: &str,
    memory: Option<AgentMemoryTable>,
) -> Result<(), ConfigError> {
    match memory {
        Some(AgentMemoryTable { kind: MemoryKind::Recent, scope })
            if scope != MemoryScope::Session => {}
        _ => return Ok(()),
    }
    let error = ConfigError::new(path, "`scope` goes with kind = \"state\"").with_hint(
        "a memory of this process is by session: take `scope` out, or write kind = \"state\"",
    );
    let scoped: Scoped = parse(path, text)?;
    let span = scoped.memory.and_then(|memory| Some(memory.scope?.span()));
    Err(match span {
        Some(span) => error.in_text(text, span),
        None => error,
    })
}
