use std::path::PathBuf;

use async_trait::async_trait;
use layer0::ToolSpec;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncSeekExt};
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
        Ok(vec![format!("fs:read:{}", path::resolve(&self.base, arguments)?.display())])
    }

    async fn call(&self, arguments: Value, _: &ToolContext) -> Result<Value, ToolError> {
        let path = path::resolve(&self.base, &arguments)?;
        let shown = path::shown(&self.base, &path);
        let failed = |error: std::io::Error| {
            ToolError::ExecutionFailed(format!("reading {shown} failed: {error}"))
        };
        let mut file = tokio::fs::File::open(&path).await.map_err(failed)?;
        let metadata = file.metadata().await.map_err(failed)?;
        if !metadata.is_file() {
            return Err(ToolError::InvalidInput(format!("path `{shown}` is not a file")));
        }
        let offset = arguments["offset"].as_u64().unwrap_or(0);
        let limit = arguments["limit"].as_u64().unwrap_or(DEFAULT_BYTES).min(MAX_BYTES);
        file.seek(std::io::SeekFrom::Start(offset)).await.map_err(failed)?;
        let mut bytes = Vec::new();
        (&mut file).take(limit).read_to_end(&mut bytes).await.map_err(failed)?;
        let end = offset + u64::try_from(bytes.len()).unwrap_or(0);
        let text = String::from_utf8_lossy(&bytes);
        let mut answer = json!({"path": shown, "text": text});
        if end < metadata.len() {
            answer["next_offset"] = json!(end);
            answer["total_bytes"] = json!(metadata.len());
        }
        Ok(answer)
    }
}
