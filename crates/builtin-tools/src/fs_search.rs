use std::path::{Path, PathBuf};

use async_trait::async_trait;
use backstop_tool::{Arguments, Tool, ToolContext, ToolError};
use layer0::{JsonText, ToolSpec};
use serde_json::json;

use self::search::FileSearch;
use crate::path;
use crate::walk::GiveUp;

mod search;

/// Default number of returned matches.
const DEFAULT_MATCHES: u64 = 50;
/// Maximum number of matches that the model can ask for.
const MAX_MATCHES: u64 = 500;
/// `fs_search`: searches files by a regular expression. A call needs `fs:read` of everything below the searched path.
///
/// Files are searched if they are UTF-8, or UTF-16 with a byte-order mark. Hidden files, installed packages and entries
/// named by ignore files below the path are skipped unless the model asks for everything. The answer lists the skipped
/// files with the reasons.
#[derive(Debug, Clone)]
pub struct FsSearch {
    spec: ToolSpec,
    base: PathBuf,
}

impl FsSearch {
    /// Creates the tool; relative paths are relative to `base`.
    pub fn new(base: impl Into<PathBuf>) -> Self {
        let schema = json!({
            "type": "object",
            "properties": {
                "pattern": {"type": "string", "description": "A regular expression, matched against each line."},
                "path": {"type": "string", "description": "The file or folder to search."},
                "everything": {"type": "boolean", "description": "Search hidden files, installed packages and what ignore files name too."},
                "max_matches": {"type": "integer", "minimum": 1, "description": "How many matches to return, at most; 50 otherwise."},
            },
            "required": ["pattern", "path"],
            "additionalProperties": false,
        });
        let description = "Search text files line by line. Returns file, line number and text of each match, \
            how many more there are, and what was skipped. Hidden files and what .gitignore names are \
            skipped unless `everything` is true.";
        let spec = ToolSpec::new("fs_search", description, schema).idempotent().exploratory();
        Self { spec, base: base.into() }
    }
}

#[async_trait]
impl Tool for FsSearch {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn needs(&self, arguments: &Arguments) -> Result<Vec<String>, ToolError> {
        Ok(vec![capability(&path::resolve(&self.base, arguments))])
    }

    fn describe_denied_need(&self, arguments: &Arguments, _: &str) -> String {
        // The target of a link, and whether it is a folder, is not disclosed.
        format!("fs:read:{}/**", path::path_argument(arguments).trim_end_matches('/'))
    }

    async fn call(
        &self,
        arguments: &Arguments,
        context: &ToolContext,
    ) -> Result<JsonText, ToolError> {
        let pattern = arguments["pattern"].as_str().unwrap_or_default();
        let pattern = search::compile(pattern)
            .map_err(|error| ToolError::InvalidInput(format!("pattern does not parse: {error}")))?;
        let root = path::resolve(&self.base, arguments);
        let asked = path::path_argument(arguments);
        if !path::granted(context, &capability(&root)) {
            return Err(ToolError::ExecutionFailed(format!(
                "`{asked}` changed between being judged and being searched"
            )));
        }
        if let Err(error) = std::fs::metadata(&root) {
            return Err(ToolError::InvalidInput(format!("path `{asked}` cannot be read: {error}")));
        }
        let max =
            arguments.whole_number("max_matches")?.unwrap_or(DEFAULT_MATCHES).min(MAX_MATCHES);
        // A blocking task cannot be aborted; it checks whether its caller still waits.
        let (_guard, given_up) = GiveUp::new();
        let search = FileSearch {
            base: self.base.clone(),
            root,
            pattern,
            max: usize::try_from(max).unwrap_or(usize::MAX),
            is_everything: arguments["everything"].as_bool().unwrap_or_default(),
            given_up,
        };
        tokio::task::spawn_blocking(move || search.run())
            .await
            .map(JsonText::from)
            .map_err(|error| ToolError::Other(error.into()))
    }
}

fn capability(path: &Path) -> String {
    // A folder is searched to any depth, which only a grant to any depth covers.
    if path.is_dir() {
        return format!("fs:read:{}", path.join("**").display());
    }
    format!("fs:read:{}", path.display())
}
