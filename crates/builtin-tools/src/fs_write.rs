use std::path::{Path, PathBuf};

use async_trait::async_trait;
use backstop_tool::{Arguments, Tool, ToolContext, ToolError};
use layer0::{JsonText, ToolSpec};
use serde_json::{Value, json};

use self::target::WriteTarget;
use crate::path;

mod diff;
mod target;

/// Names of the arguments; the last three are added by the tool for the approval.
const ARGUMENTS: [&str; 5] = ["path", "content", "file", "diff", "replaces"];

/// `fs_write`: writes a whole text file. A call needs `fs:write:<path>` and an approval.
///
/// The arguments of the approval contain the target of the path with resolved links (`file`), and the change as a
/// unified diff (`diff`). The file is written only if the path still leads to that target, and if the file still has
/// the content that the diff was made from (`replaces`, SHA-256). The content is written to a temporary file in the
/// same folder, synced and renamed, so that after any failure the file has either the old or the new content.
/// Permissions and owner of a replaced file are kept; other names of the same file (hard links) keep the old content.
///
/// ```
/// use backstop_builtin_tools::FsWrite;
/// use backstop_tool::Tool;
///
/// assert!(FsWrite::new("/data").spec().approval);
/// assert!(!FsWrite::new("/data").without_approval().spec().approval);
/// ```
#[derive(Debug, Clone)]
pub struct FsWrite {
    spec: ToolSpec,
    base: PathBuf,
}

impl FsWrite {
    /// Creates the tool; relative paths are relative to `base`.
    pub fn new(base: impl Into<PathBuf>) -> Self {
        let schema = json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The file. Its folder has to exist."},
                "content": {"type": "string", "description": "What the file is to hold, all of it."},
            },
            "required": ["path", "content"],
        });
        let description = "Write a text file: make it, or replace all that it holds.";
        let spec = ToolSpec::new("fs_write", description, schema).idempotent().approval();
        Self { spec, base: base.into() }
    }

    /// Lets calls run without an approval.
    #[must_use]
    pub fn without_approval(mut self) -> Self {
        self.spec.approval = false;
        self
    }
}

#[async_trait]
impl Tool for FsWrite {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn needs(&self, arguments: &Arguments) -> Result<Vec<String>, ToolError> {
        let mut given = arguments.value().as_object().into_iter().flat_map(|given| given.keys());
        if let Some(unknown) = given.find(|name| !ARGUMENTS.contains(&name.as_str())) {
            return Err(ToolError::InvalidInput(format!("{unknown} is not known")));
        }
        Ok(vec![capability(&path::resolve(&self.base, arguments))])
    }

    fn describe_denied_need(&self, arguments: &Arguments, _: &str) -> String {
        // The target of a link is not disclosed.
        format!("fs:write:{}", path::path_argument(arguments))
    }

    async fn proposal(
        &self,
        arguments: &Arguments,
        context: &ToolContext,
    ) -> Result<Option<JsonText>, ToolError> {
        let (base, arguments, context) = (self.base.clone(), arguments.clone(), context.clone());
        tokio::task::spawn_blocking(move || propose(&base, &arguments, &context))
            .await
            .map_err(|error| ToolError::Other(error.into()))?
            .map(Some)
    }

    async fn call(
        &self,
        arguments: &Arguments,
        context: &ToolContext,
    ) -> Result<JsonText, ToolError> {
        let (base, arguments, context) = (self.base.clone(), arguments.clone(), context.clone());
        tokio::task::spawn_blocking(move || write(&base, &arguments, &context))
            .await
            .map_err(|error| ToolError::Other(error.into()))?
    }
}

fn capability(path: &Path) -> String {
    format!("fs:write:{}", path.display())
}

/// Opens the current state of the file to write.
fn open(
    base: &Path,
    arguments: &Arguments,
    context: &ToolContext,
) -> Result<WriteTarget, ToolError> {
    let judged = |real: &Path| path::granted(context, &capability(real));
    WriteTarget::open(path::resolve(base, arguments), path::path_argument(arguments), judged)
}

fn content(arguments: &Arguments) -> &str {
    arguments["content"].as_str().unwrap_or_default()
}

/// Returns the arguments together with the data for the approval, to which the write is bound.
fn propose(
    base: &Path,
    arguments: &Arguments,
    context: &ToolContext,
) -> Result<JsonText, ToolError> {
    let target = open(base, arguments, context)?;
    let shown = path::path_argument(arguments);
    let proposed = json!({
        "path": arguments["path"],
        "content": arguments["content"],
        "file": target.path().display().to_string(),
        "diff": diff::format_diff(shown, target.old(), content(arguments)),
        "replaces": target.digest(),
    });
    Ok(proposed.into())
}

fn write(base: &Path, arguments: &Arguments, context: &ToolContext) -> Result<JsonText, ToolError> {
    let target = open(base, arguments, context)?;
    let shown = path::path_argument(arguments);
    // Before the content is compared: another file may have the same content.
    if is_changed(&arguments["file"], &target.path().display().to_string()) {
        return Err(change_error(shown, "it leads to another file than when a person agreed"));
    }
    let content = content(arguments);
    let mut answer = json!({
        "path": path::display_path(base, target.path()),
        "bytes": content.len(),
    });
    if target.old() == Some(content.as_bytes()) {
        // Also if the same call has already written it.
        answer["unchanged"] = Value::Bool(true);
        return Ok(answer.into());
    }
    if is_changed(&arguments["replaces"], &target.digest()) {
        return Err(change_error(shown, "it changed after a person agreed"));
    }
    if context.cancellation.is_cancelled() {
        return Err(ToolError::Cancelled);
    }
    answer["created"] = Value::Bool(target.old().is_none());
    target.replace(content).map_err(|error| {
        ToolError::ExecutionFailed(format!("writing `{shown}` failed: {error}"))
    })?;
    Ok(answer.into())
}

/// Returns whether a value differs from the approved one; arguments without that value match anything.
fn is_changed(shown: &Value, now: &str) -> bool {
    shown.as_str().is_some_and(|shown| shown != now)
}

fn change_error(shown: &str, why: &str) -> ToolError {
    ToolError::ExecutionFailed(format!("`{shown}` is not written: {why}")).with_code("CHANGED")
}
