//! Paths as the model writes them, and as the policy sees them.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tool::ToolError;

/// Resolves the `path` argument against `base`, links and `..` included, so that what the policy
/// judges is what is opened.
pub(crate) fn resolve(base: &Path, arguments: &Value) -> Result<PathBuf, ToolError> {
    let asked = arguments["path"].as_str().unwrap_or(".");
    std::fs::canonicalize(base.join(asked)).map_err(|error| {
        let shown: String = asked.chars().take(200).collect();
        ToolError::InvalidInput(format!("path `{shown}` cannot be read: {error}"))
    })
}

/// Shows a path below `base` without it.
pub(crate) fn shown(base: &Path, path: &Path) -> String {
    let base = std::fs::canonicalize(base).unwrap_or_else(|_| base.to_owned());
    path.strip_prefix(&base).unwrap_or(path).display().to_string()
}
