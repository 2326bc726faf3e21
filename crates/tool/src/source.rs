//! Tools that come from a place of their own, such as an MCP server.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::Tool;

/// Gives tools that are listed elsewhere, and says what becomes of that list.
///
/// An agent takes the tools when it is built and keeps to them: what changes at the source is recorded
/// (`mcp.tools_changed`) and changes nothing of what the model is given.
pub trait ToolSource: Send + Sync {
    /// Returns the name of the source, which is in the names of its tools.
    fn name(&self) -> &str;

    /// Returns the tools, in the order in which the model is given them; the same at every call.
    fn tools(&self) -> Vec<Arc<dyn Tool>>;

    /// Returns the tools that cannot be used, and why; the same at every call.
    fn left_out(&self) -> &[LeftOut];

    /// Returns what else is wrong with the list, as sentences without a full stop; the same at every call.
    fn warnings(&self) -> &[String] {
        &[]
    }

    /// Returns what the source listed when the tools were taken; the same at every call. It stands in the
    /// record of each run.
    fn listing(&self) -> &ToolListing;

    /// Returns what the source lists now, as far as it is known; [`ToolSource::listing`] until it changes.
    fn current(&self) -> Arc<ToolListing>;
}

/// A tool of a source that an agent is not given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LeftOut {
    /// Its name at the source.
    pub origin: String,
    /// Why it cannot be used.
    pub why: String,
}

impl LeftOut {
    /// Says why a tool is not given to an agent.
    pub fn new(origin: impl Into<String>, why: impl Into<String>) -> Self {
        Self { origin: origin.into(), why: why.into() }
    }
}

/// What a source listed at one time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolListing {
    /// The source.
    pub server: String,
    /// What it calls itself, with its version, where it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub implementation: Option<String>,
    /// The revision of the protocol that it is spoken to in, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Its tools, by the names that the model calls them by.
    pub tools: BTreeMap<String, ListedTool>,
}

/// A tool in a [`ToolListing`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ListedTool {
    /// Its name at the source.
    pub origin: String,
    /// SHA-256, in hex, of what the source says of it: name, description, schemas.
    pub digest: String,
}

impl ListedTool {
    /// Describes a tool by its name at the source and the digest of what that says of it.
    pub fn new(origin: impl Into<String>, digest: impl Into<String>) -> Self {
        Self { origin: origin.into(), digest: digest.into() }
    }
}

/// How two listings of a source differ, by the names that the model calls the tools by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolChanges {
    /// Listed later only.
    pub added: Vec<String>,
    /// Listed earlier only.
    pub removed: Vec<String>,
    /// Described otherwise.
    pub changed: Vec<String>,
}

impl ToolChanges {
    /// Are there none?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

impl ToolListing {
    /// Makes the listing of a source that lists nothing yet.
    pub fn new(server: impl Into<String>) -> Self {
        Self { server: server.into(), ..Self::default() }
    }

    /// Returns what is different in a later listing.
    ///
    /// ```
    /// use backstop_tool::{ListedTool, ToolListing};
    ///
    /// let mut before = ToolListing::new("files");
    /// before.tools.insert("files__read".into(), ListedTool::new("read", "aa"));
    /// let mut after = before.clone();
    /// after.tools.insert("files__write".into(), ListedTool::new("write", "bb"));
    /// let changes = before.changes(&after);
    /// assert_eq!(changes.added, ["files__write"]);
    /// assert!(changes.removed.is_empty() && changes.changed.is_empty());
    /// ```
    #[must_use]
    pub fn changes(&self, later: &Self) -> ToolChanges {
        let missing = |from: &Self, other: &Self| {
            let names = from.tools.keys().filter(|name| !other.tools.contains_key(*name));
            names.cloned().collect()
        };
        let changed = self.tools.iter().filter(|(name, tool)| {
            later.tools.get(*name).is_some_and(|other| other.digest != tool.digest)
        });
        ToolChanges {
            added: missing(later, self),
            removed: missing(self, later),
            changed: changed.map(|(name, _)| name.clone()).collect(),
        }
    }
}
