use std::path::{Path, PathBuf};

use async_trait::async_trait;
use backstop_tool::{Arguments, Tool, ToolContext, ToolError};
use layer0::{JsonText, ToolSpec};
use serde_json::json;

use self::listing::Listing;
use self::matcher::Matcher;
use crate::path;
use crate::walk::GiveUp;

mod listing;
mod matcher;

/// Default number of returned entries.
const DEFAULT_ENTRIES: u64 = 200;
/// Maximum number of entries that the model can ask for.
const MAX_ENTRIES: u64 = 2_000;

/// `fs_list`: lists a folder, with the type and the size of each entry. A call needs `fs:read:<path>`; a call that also
/// lists the folders below needs `fs:read` of everything below the path.
///
/// The folder itself is listed completely. In the folders below, hidden entries, installed packages and entries named
/// by ignore files are skipped unless the model asks for everything; the answer lists the skipped entries with the
/// reasons. Links are listed, but not followed.
///
/// ```
/// use backstop_builtin_tools::FsList;
/// use backstop_tool::{Grants, Toolset};
///
/// let tools = Toolset::new().with(FsList::new("/data"))?;
/// let grants = Grants::parse(["fs:read:/data/**"])?;
/// assert!(tools.admit("fs_list", serde_json::json!({"path": "."}), &grants).is_ok());
/// let refused = tools.admit("fs_list", serde_json::json!({"path": "/etc"}), &grants).err().unwrap();
/// assert_eq!(refused.to_string(), "tool `fs_list` requires `fs:read:/etc`");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct FsList {
    spec: ToolSpec,
    base: PathBuf,
}

impl FsList {
    /// Creates the tool; relative paths are relative to `base`.
    pub fn new(base: impl Into<PathBuf>) -> Self {
        let schema = json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The folder."},
                "pattern": {"type": "string", "description": "Which entries to return, such as *.log or src/**/*.rs; all otherwise. Without a slash it is matched against names, else against paths below the folder."},
                "recursive": {"type": "boolean", "description": "List the folders below too."},
                "everything": {"type": "boolean", "description": "With recursive: hidden entries, installed packages and what .gitignore names too."},
                "max_entries": {"type": "integer", "minimum": 1, "description": "How many entries to return, at most; 200 otherwise."},
            },
            "required": ["path"],
            "additionalProperties": false,
        });
        let description = "List a folder. Returns name, type (file, folder, link, other) and size in bytes \
            of each entry, how many more there are, and what was skipped.";
        let spec = ToolSpec::new("fs_list", description, schema).idempotent().exploratory();
        Self { spec, base: base.into() }
    }
}

#[async_trait]
impl Tool for FsList {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn needs(&self, arguments: &Arguments) -> Result<Vec<String>, ToolError> {
        Ok(vec![capability(arguments, &path::resolve(&self.base, arguments))])
    }

    fn describe_denied_need(&self, arguments: &Arguments, _: &str) -> String {
        // The target of a link is not disclosed.
        let asked = path::path_argument(arguments);
        match is_recursive(arguments) {
            true => format!("fs:read:{}/**", asked.trim_end_matches('/')),
            false => format!("fs:read:{asked}"),
        }
    }

    async fn call(
        &self,
        arguments: &Arguments,
        context: &ToolContext,
    ) -> Result<JsonText, ToolError> {
        let pattern = arguments["pattern"].as_str().map(Matcher::new).transpose()?;
        let root = path::resolve(&self.base, arguments);
        let asked = path::path_argument(arguments);
        if !path::granted(context, &capability(arguments, &root)) {
            return Err(change_error(asked));
        }
        match std::fs::metadata(&root) {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => {
                return Err(ToolError::InvalidInput(format!("path `{asked}` is not a folder")));
            }
            Err(error) => {
                let why = format!("path `{asked}` cannot be read: {error}");
                return Err(ToolError::InvalidInput(why));
            }
        }
        let max =
            arguments.whole_number("max_entries")?.unwrap_or(DEFAULT_ENTRIES).min(MAX_ENTRIES);
        // A blocking task cannot be aborted; it checks whether its caller still waits.
        let (_guard, given_up) = GiveUp::new();
        let listing = Listing {
            base: self.base.clone(),
            root,
            pattern,
            max: usize::try_from(max).unwrap_or(usize::MAX),
            is_recursive: is_recursive(arguments),
            is_everything: arguments["everything"].as_bool().unwrap_or_default(),
            given_up,
        };
        let listed = tokio::task::spawn_blocking(move || listing.run())
            .await
            .map_err(|error| ToolError::Other(error.into()))?;
        listed.map(JsonText::from).map_err(|_| change_error(asked))
    }
}

fn change_error(asked: &str) -> ToolError {
    ToolError::ExecutionFailed(format!("`{asked}` changed between being judged and being listed"))
}

fn is_recursive(arguments: &Arguments) -> bool {
    arguments["recursive"].as_bool().unwrap_or_default()
}

fn capability(arguments: &Arguments, path: &Path) -> String {
    // The folders below are listed to any depth, which only a grant to any depth covers.
    match is_recursive(arguments) {
        true => format!("fs:read:{}", path.join("**").display()),
        false => format!("fs:read:{}", path.display()),
    }
}
