use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use layer0::ToolSpec;
use regex::{Regex, RegexBuilder};
use serde_json::{Value, json};
use tool::{Tool, ToolContext, ToolError};
use walkdir::WalkDir;

use crate::path;

/// How many matches are returned unless the model asks for another number.
const DEFAULT_MATCHES: u64 = 50;
/// The most matches the model can ask for.
const MAX_MATCHES: u64 = 500;
/// How many characters of a matching line are shown.
const MAX_LINE_CHARS: usize = 300;
/// How many bytes of one line are read; a longer line is searched only that far.
const MAX_LINE_BYTES: u64 = 1024 * 1024;
/// The largest compiled pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 1024 * 1024;

/// `fs_search`: searches files by a regular expression. A call needs `fs:read` of everything below
/// the path it searches.
#[derive(Debug, Clone)]
pub struct FsSearch {
    spec: ToolSpec,
    base: PathBuf,
}

impl FsSearch {
    /// Makes the tool; relative paths are below `base`.
    pub fn new(base: impl Into<PathBuf>) -> Self {
        let schema = json!({
            "type": "object",
            "properties": {
                "pattern": {"type": "string", "description": "A regular expression, matched against each line."},
                "path": {"type": "string", "description": "The file or folder to search."},
                "max_matches": {"type": "integer", "minimum": 1, "description": "How many matches to return, at most; 50 otherwise."},
            },
            "required": ["pattern", "path"],
            "additionalProperties": false,
        });
        let description = "Search text files line by line. Returns file, line number and text of each match, \
            and how many more there are.";
        let spec = ToolSpec::new("fs_search", description, schema).idempotent().exploratory();
        Self { spec, base: base.into() }
    }
}

#[async_trait]
impl Tool for FsSearch {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn needs(&self, arguments: &Value) -> Result<Vec<String>, ToolError> {
        let path = path::resolve(&self.base, arguments)?;
        // A folder is searched to any depth, which only a grant to any depth covers.
        let depth = if path.is_dir() { "/**/*" } else { "" };
        Ok(vec![format!("fs:read:{}{depth}", path.display())])
    }

    async fn call(&self, arguments: Value, _: &ToolContext) -> Result<Value, ToolError> {
        let root = path::resolve(&self.base, &arguments)?;
        let pattern = arguments["pattern"].as_str().unwrap_or_default();
        let pattern = RegexBuilder::new(pattern)
            .size_limit(MAX_PATTERN_BYTES)
            .build()
            .map_err(|error| ToolError::InvalidInput(format!("pattern does not parse: {error}")))?;
        let max = arguments["max_matches"].as_u64().unwrap_or(DEFAULT_MATCHES).min(MAX_MATCHES);
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        let base = self.base.clone();
        let search = move || search(&base, &root, &pattern, max);
        tokio::task::spawn_blocking(search).await.map_err(|error| ToolError::Other(error.into()))
    }
}

fn search(base: &Path, root: &Path, pattern: &Regex, max: usize) -> Value {
    let (mut matches, mut found, mut unreadable) = (Vec::new(), 0_usize, 0_usize);
    // Links are not followed: they may lead out of what was granted.
    for entry in WalkDir::new(root).sort_by_file_name().into_iter() {
        let Ok(entry) = entry else {
            unreadable += 1;
            continue;
        };
        if !entry.file_type().is_file() {
            continue;
        }
        let Ok(file) = File::open(entry.path()) else {
            unreadable += 1;
            continue;
        };
        let mut reader = BufReader::new(file);
        let mut line = Vec::new();
        for number in 1_usize.. {
            line.clear();
            match (&mut reader).take(MAX_LINE_BYTES).read_until(b'\n', &mut line) {
                Ok(0) => break,
                Ok(_) if line.contains(&0) => break,
                Ok(_) => {}
                Err(_) => {
                    unreadable += 1;
                    break;
                }
            }
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end_matches(['\n', '\r']);
            if pattern.is_match(text) {
                found += 1;
                if matches.len() < max {
                    let shown: String = text.chars().take(MAX_LINE_CHARS).collect();
                    matches.push(json!({
                        "file": path::shown(base, entry.path()), "line": number, "text": shown,
                    }));
                }
            }
        }
    }
    let mut answer = json!({"matches": matches});
    if found > max {
        answer["more"] = json!(found - max);
    }
    if unreadable > 0 {
        answer["unreadable_files"] = json!(unreadable);
    }
    answer
}
