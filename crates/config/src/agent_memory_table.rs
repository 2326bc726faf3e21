//! `[memory]` of an agent file.

use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;

use crate::ConfigError;
use crate::parse::parse;

/// The memory of an agent from one run to the next; without the table the agent has none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct AgentMemoryTable {
    /// Storage of the memory.
    pub kind: MemoryKind,
    /// The runs that read the memory.
    pub scope: MemoryScope,
}

/// The storage of a memory.
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

/// The runs that read a memory.
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

/// Finds the place of `scope` in the text.
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
