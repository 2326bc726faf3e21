use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use layer0::ToolSpec;
use regex::{Regex, RegexBuilder};
use serde_json::{Value, json};
use tool::{Tool, ToolContext, ToolError};
use walkdir::WalkDir;

use crate::path::{self, OpenFailure};

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
        Ok(vec![capability(&path::resolve(&self.base, arguments))])
    }

    async fn call(&self, arguments: &Value, context: &ToolContext) -> Result<Value, ToolError> {
        let pattern = arguments["pattern"].as_str().unwrap_or_default();
        let pattern = RegexBuilder::new(pattern)
            .size_limit(MAX_PATTERN_BYTES)
            .build()
            .map_err(|error| ToolError::InvalidInput(format!("pattern does not parse: {error}")))?;
        let root = path::resolve(&self.base, arguments);
        let shown = path::shown(&self.base, &root);
        if let Err(error) = std::fs::metadata(&root) {
            return Err(ToolError::InvalidInput(format!("path `{shown}` cannot be read: {error}")));
        }
        if !path::granted(context, &capability(&root)) {
            return Err(ToolError::ExecutionFailed(format!(
                "`{shown}` changed between being judged and being searched"
            )));
        }
        let max = arguments["max_matches"].as_u64().unwrap_or(DEFAULT_MATCHES).min(MAX_MATCHES);
        let given_up = Arc::new(AtomicBool::new(false));
        let search = Search {
            base: self.base.clone(),
            root,
            pattern,
            max: usize::try_from(max).unwrap_or(usize::MAX),
            given_up: Arc::clone(&given_up),
        };
        // A blocking task cannot be aborted; it looks whether anybody still waits.
        let _guard = GiveUp(given_up);
        tokio::task::spawn_blocking(move || search.run())
            .await
            .map_err(|error| ToolError::Other(error.into()))
    }
}

fn capability(path: &Path) -> String {
    // A folder is searched to any depth, which only a grant to any depth covers.
    let depth = if path.is_dir() { "/**/*" } else { "" };
    format!("fs:read:{}{depth}", path.display())
}

/// Tells the search that nobody waits for it any more.
struct GiveUp(Arc<AtomicBool>);

impl Drop for GiveUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Search {
    base: PathBuf,
    root: PathBuf,
    pattern: Regex,
    max: usize,
    given_up: Arc<AtomicBool>,
}

#[derive(Default)]
struct Found {
    matches: Vec<Value>,
    lines: usize,
    unreadable: usize,
}

impl Search {
    fn run(&self) -> Value {
        let mut found = Found::default();
        // Links are not followed: they may lead out of what was granted.
        for entry in WalkDir::new(&self.root).sort_by_file_name() {
            if self.given_up.load(Ordering::Relaxed) {
                break;
            }
            match entry {
                Ok(entry) if entry.file_type().is_file() => {
                    if self.file(entry.path(), &mut found).is_err() {
                        found.unreadable += 1;
                    }
                }
                Ok(_) => {}
                Err(_) => found.unreadable += 1,
            }
        }
        let mut answer = json!({"matches": found.matches});
        if found.lines > self.max {
            answer["more"] = json!(found.lines - self.max);
        }
        if found.unreadable > 0 {
            answer["unreadable_files"] = json!(found.unreadable);
        }
        answer
    }

    fn file(&self, path: &Path, found: &mut Found) -> Result<(), OpenFailure> {
        let (file, _) = path::open_judged(path, |real| real.starts_with(&self.root))?;
        let mut reader = BufReader::new(file);
        let mut line = Vec::new();
        for number in 1_usize.. {
            line.clear();
            let read = (&mut reader).take(MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
            if read == 0 || line.contains(&0) || self.given_up.load(Ordering::Relaxed) {
                break;
            }
            if !line.ends_with(b"\n") {
                reader.skip_until(b'\n')?;
            }
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end_matches(['\n', '\r']);
            if !self.pattern.is_match(text) {
                continue;
            }
            found.lines += 1;
            if found.matches.len() < self.max {
                let shown: String = text.chars().take(MAX_LINE_CHARS).collect();
                let file = path::shown(&self.base, path);
                found.matches.push(json!({"file": file, "line": number, "text": shown}));
            }
        }
        Ok(())
    }
}
