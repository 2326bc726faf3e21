use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use backstop_tool::{Arguments, Tool, ToolContext, ToolError};
use layer0::{JsonText, ToolSpec};
use serde_json::json;

use crate::path;

mod page;

/// Default number of bytes to read.
const DEFAULT_BYTES: u64 = 16 * 1024;
/// Maximum number of bytes that the model can ask for at once.
const MAX_BYTES: u64 = 256 * 1024;

/// Maximum number of bytes of a character after its first byte.
const CHARACTER_REST: u64 = 3;
/// Maximum size of an answer as JSON if the model asks for no size; equal to the default limit for a result.
const MAX_ANSWER_BYTES: usize = 16 * 1024;

/// `fs_read`: reads a part of a text file. A call needs `fs:read:<path>`.
///
/// A page begins and ends between characters, and its `next_offset` is the beginning of the next one. Unless the model
/// asks for a size, the whole answer fits into the limit for a result.
#[derive(Debug, Clone)]
pub struct FsRead {
    spec: ToolSpec,
    base: PathBuf,
    max_answer_bytes: usize,
}

impl FsRead {
    /// Creates the tool; relative paths are relative to `base`.
    pub fn new(base: impl Into<PathBuf>) -> Self {
        let schema = json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The file."},
                "offset": {"type": "integer", "minimum": 0, "description": "Where to begin, in bytes."},
                "limit": {"type": "integer", "minimum": 1, "description": "How much to read, in bytes; otherwise what fits into one result."},
            },
            "required": ["path"],
            "additionalProperties": false,
        });
        let description = "Read a text file. Returns its text from offset on, and next_offset when there is more.";
        let spec = ToolSpec::new("fs_read", description, schema).idempotent().exploratory();
        Self { spec, base: base.into(), max_answer_bytes: MAX_ANSWER_BYTES }
    }

    /// Limits the size of an answer to a call that asks for no size, in bytes of JSON; 16 KiB by default.
    #[must_use]
    pub fn max_answer_bytes(mut self, bytes: usize) -> Self {
        self.max_answer_bytes = bytes;
        self
    }
}

#[async_trait]
impl Tool for FsRead {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn needs(&self, arguments: &Arguments) -> Result<Vec<String>, ToolError> {
        Ok(vec![capability(&path::resolve(&self.base, arguments))])
    }

    fn describe_denied_need(&self, arguments: &Arguments, _: &str) -> String {
        // The target of a link is not disclosed.
        format!("fs:read:{}", path::path_argument(arguments))
    }

    async fn call(
        &self,
        arguments: &Arguments,
        context: &ToolContext,
    ) -> Result<JsonText, ToolError> {
        let (base, arguments, context) = (self.base.clone(), arguments.clone(), context.clone());
        let max = self.max_answer_bytes;
        tokio::task::spawn_blocking(move || read(&base, max, &arguments, &context))
            .await
            .map_err(|error| ToolError::Other(error.into()))?
    }
}

fn capability(path: &Path) -> String {
    format!("fs:read:{}", path.display())
}

fn read(
    base: &Path,
    max_answer_bytes: usize,
    arguments: &Arguments,
    context: &ToolContext,
) -> Result<JsonText, ToolError> {
    let path = path::resolve(base, arguments);
    let shown = path::display_path(base, &path);
    let judged = |real: &Path| path::granted(context, &capability(real));
    let (mut file, metadata) = path::open_judged(&path, judged)
        .map_err(|failure| failure.into_tool_error(path::path_argument(arguments)))?;
    let total = metadata.len();
    let asked = arguments.whole_number("offset")?.unwrap_or(0).min(total);
    let limit = arguments.whole_number("limit")?;
    let bytes_asked = limit.unwrap_or(DEFAULT_BYTES).min(MAX_BYTES);
    // A character may begin before the page, and end after it.
    let from = asked.saturating_sub(CHARACTER_REST);
    let (lead, mut bytes) = (to_usize(asked - from), Vec::new());
    file.seek(SeekFrom::Start(from))
        .and_then(|_| {
            let around = u64::try_from(lead).unwrap_or(0) + bytes_asked + CHARACTER_REST;
            file.take(around).read_to_end(&mut bytes)
        })
        .map_err(|error| ToolError::ExecutionFailed(format!("reading {shown} failed: {error}")))?;
    let begin = page::boundary(&bytes, lead);
    let offset = from + u64::try_from(begin).unwrap_or(0);
    let mut answer = json!({"path": shown, "text": ""});
    if offset < asked {
        answer["offset"] = json!(offset);
    }
    let mut longest = answer.clone();
    longest["next_offset"] = json!(u64::MAX);
    longest["total_bytes"] = json!(u64::MAX);
    let room = match limit {
        Some(_) => usize::MAX,
        None => max_answer_bytes.saturating_sub(longest.to_string().len()),
    };
    let (text, read) = page::text(&bytes[begin..], to_usize(bytes_asked), room);
    let end = offset + u64::try_from(read).unwrap_or(0);
    answer["text"] = json!(text);
    if end < total {
        answer["next_offset"] = json!(end);
    }
    if asked > 0 || end < total {
        answer["total_bytes"] = json!(total);
    }
    Ok(answer.into())
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
