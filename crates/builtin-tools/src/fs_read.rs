use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use layer0::ToolSpec;
use serde_json::{Value, json};
use tool::{Tool, ToolContext, ToolError};

use crate::path;

/// How many bytes are read unless the model asks for another size.
const DEFAULT_BYTES: u64 = 16 * 1024;
/// The most bytes the model can ask for at once.
const MAX_BYTES: u64 = 256 * 1024;

/// `fs_read`: reads a part of a text file. A call needs `fs:read:<path>`.
#[derive(Debug, Clone)]
pub struct FsRead {
    spec: ToolSpec,
    base: PathBuf,
}

impl FsRead {
    /// Makes the tool; relative paths are below `base`.
    pub fn new(base: impl Into<PathBuf>) -> Self {
        let schema = json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The file."},
                "offset": {"type": "integer", "minimum": 0, "description": "Where to begin, in bytes."},
                "limit": {"type": "integer", "minimum": 1, "description": "How much to read, in bytes; 16384 otherwise."},
            },
            "required": ["path"],
            "additionalProperties": false,
        });
        let description = "Read a text file. Returns its text from offset on, and next_offset when there is more.";
        let spec = ToolSpec::new("fs_read", description, schema).idempotent().exploratory();
        Self { spec, base: base.into() }
    }
}

#[async_trait]
impl Tool for FsRead {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn needs(&self, arguments: &Value) -> Result<Vec<String>, ToolError> {
        Ok(vec![capability(&path::resolve(&self.base, arguments))])
    }

    async fn call(&self, arguments: &Value, context: &ToolContext) -> Result<Value, ToolError> {
        let (base, arguments, context) = (self.base.clone(), arguments.clone(), context.clone());
        tokio::task::spawn_blocking(move || read(&base, &arguments, &context))
            .await
            .map_err(|error| ToolError::Other(error.into()))?
    }
}

fn capability(path: &Path) -> String {
    format!("fs:read:{}", path.display())
}

fn read(base: &Path, arguments: &Value, context: &ToolContext) -> Result<Value, ToolError> {
    let path = path::resolve(base, arguments);
    let shown = path::shown(base, &path);
    let judged = |real: &Path| path::granted(context, &capability(real));
    let (mut file, metadata) =
        path::open_judged(&path, judged).map_err(|failure| failure.into_tool_error(&shown))?;
    let offset = arguments["offset"].as_u64().unwrap_or(0);
    let limit = arguments["limit"].as_u64().unwrap_or(DEFAULT_BYTES).min(MAX_BYTES);
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(offset))
        .and_then(|_| file.take(limit).read_to_end(&mut bytes))
        .map_err(|error| ToolError::ExecutionFailed(format!("reading {shown} failed: {error}")))?;
    let end = offset + u64::try_from(bytes.len()).unwrap_or(0);
    let mut answer = json!({"path": shown, "text": String::from_utf8_lossy(&bytes)});
    if end < metadata.len() {
        answer["next_offset"] = json!(end);
        answer["total_bytes"] = json!(metadata.len());
    }
    Ok(answer)
}
