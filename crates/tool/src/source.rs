//! Tools from an external source, such as an MCP server.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::Tool;

/// A source of tools that are listed elsewhere, with the changes of their list.
///
/// An agent takes the tools when it is built and keeps them: a change at the source is recorded (`mcp.tools_changed`),
/// but does not change the tools that the model receives.
pub trait ToolSource: Send + Sync {
    /// Returns the name of the source, which is part of the names of its tools.
    fn name(&self) -> &str;

    /// Returns the tools in the order in which the model receives them; the same at every call.
    fn tools(&self) -> Vec<Arc<dyn Tool>>;

    /// Returns the tools that cannot be used, with the reasons; the same at every call.
    fn left_out(&self) -> &[LeftOut];

    /// Returns other problems of the list, as sentences without a full stop; the same at every call.
    fn warnings(&self) -> &[String] {
        &[]
    }

    /// Returns the listing of the source when the tools were taken; the same at every call. It is part of the record of
    /// each run.
    fn listing(&self) -> &ToolListing;

    /// Returns the last known listing of the source; [`ToolSource::listing`] until it changes.
    fn current(&self) -> Arc<ToolListing>;
}

/// A tool of a source that is not given to an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LeftOut {
    /// Its name at the source.
    pub origin: String,
    /// Reason that it cannot be used.
    pub why: String,
}

impl LeftOut {
    /// Returns the tool with the reason that it is not given to an agent.
    pub fn new(origin: impl Into<String>, why: impl Into<String>) -> Self {
        Self { origin: origin.into(), why: why.into() }
    }
}

/// The tools that a source listed at one time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolListing {
    /// Name of the source.
    pub server: String,
    /// The source's own name and version, if it states them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub implementation: Option<String>,
    /// Revision of the protocol that is used with the source, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Its tools, by the names that the model uses.
    pub tools: BTreeMap<String, ListedTool>,
}

/// A tool in a [`ToolListing`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ListedTool {
    /// Its name at the source.
    pub origin: String,
    /// SHA-256, in hex, of the source's description of the tool: name, description, schemas.
    pub digest: String,
}

impl ListedTool {
    /// Returns an entry for a tool with its name at the source and the digest of its description there.
    pub fn new(origin: impl Into<String>, digest: impl Into<String>) -> Self {
        Self { origin: origin.into(), digest: digest.into() }
    }
}

/// The differences between two listings of a source, by the names that the model uses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolChanges {
    /// Only in the later listing.
    pub added: Vec<String>,
    /// Only in the earlier listing.
    pub removed: Vec<String>,
    /// In both, with different descriptions.
    pub changed: Vec<String>,
}

impl ToolChanges {
    /// Returns whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

impl ToolListing {
    /// Returns the listing of a source without tools.
    pub fn new(server: impl Into<String>) -> Self {
        Self { server: server.into(), ..Self::default() }
    }

    /// Returns the differences of a later listing.
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
