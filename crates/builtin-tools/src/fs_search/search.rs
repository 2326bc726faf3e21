use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use grep_matcher::Matcher;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkFinish, SinkMatch};
use ignore::{DirEntry, WalkBuilder};
use serde_json::{Value, json};

use crate::path;
use crate::walk::{CancelFlag, Filter, Reason, Skipped, failed_path};

/// Maximum shown length of a matching line, in characters.
const MAX_LINE_CHARS: usize = 300;
/// Number of characters shown before a match if its line is longer.
const CHARS_BEFORE: usize = 60;
/// Maximum length of a searched line, in bytes; a file is searched up to the first longer line.
const MAX_LINE_BYTES: usize = 16 * 1024 * 1024;
/// Maximum size of a compiled pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 1024 * 1024;

/// Compiles a pattern that is matched against each line, without the line end.
pub(super) fn compile(pattern: &str) -> Result<RegexMatcher, grep_regex::Error> {
    RegexMatcherBuilder::new()
        .size_limit(MAX_PATTERN_BYTES)
        .multi_line(true)
        .crlf(true)
        .line_terminator(Some(b'\n'))
        .build(pattern)
}

/// A search of a file, or of everything below a folder.
pub(super) struct FileSearch {
    pub(super) base: PathBuf,
    pub(super) root: PathBuf,
    pub(super) pattern: RegexMatcher,
    pub(super) max: usize,
    pub(super) is_everything: bool,
    pub(super) given_up: CancelFlag,
}

#[derive(Default)]
struct SearchMatches {
    matches: Vec<Value>,
    lines: usize,
}

impl FileSearch {
    pub(super) fn run(&self) -> Value {
        let filter = Filter::new(self.root.clone(), self.is_everything);
        let filter = Arc::new(Mutex::new(filter));
        let filtered = Arc::clone(&filter);
        // Links are not followed: they may lead out of the granted paths.
        let mut walk = WalkBuilder::new(&self.root);
        walk.standard_filters(false)
            .sort_by_file_name(Ord::cmp)
            .filter_entry(move |entry| lock(&filtered).keeps(entry));
        let mut searcher = SearcherBuilder::new()
            .line_number(true)
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(MAX_LINE_BYTES))
            .build();
        let (mut found, mut skipped) = (SearchMatches::default(), Skipped::default());
        for entry in walk.build() {
            if self.given_up.is_set() {
                break;
            }
            match entry {
                Ok(entry) => self.entry(&entry, &mut searcher, &mut found, &mut skipped),
                Err(error) => {
                    let path = failed_path(&error).unwrap_or(&self.root);
                    skipped.add(Reason::Unreadable, path);
                }
            }
        }
        skipped.append(&mut lock(&filter).skipped);
        let mut answer = json!({"matches": found.matches});
        if found.lines > self.max {
            answer["more"] = json!(found.lines - self.max);
        }
        if let Some(rows) = skipped.rows(|path| path::display_path(&self.base, path)) {
            answer["skipped"] = rows;
        }
        answer
    }

    fn entry(
        &self,
        entry: &DirEntry,
        searcher: &mut Searcher,
        found: &mut SearchMatches,
        skipped: &mut Skipped,
    ) {
        let reason = match entry.file_type() {
            Some(kind) if kind.is_dir() => None,
            Some(kind) if kind.is_symlink() => Some(Reason::Link),
            Some(kind) if !kind.is_file() => Some(Reason::NoFile),
            Some(_) | None => self.file(entry.path(), searcher, found),
        };
        if let Some(reason) = reason {
            skipped.add(reason, entry.path());
        }
    }

    /// Searches a file; returns the reason if it was not searched completely.
    fn file(
        &self,
        path: &Path,
        searcher: &mut Searcher,
        found: &mut SearchMatches,
    ) -> Option<Reason> {
        let Ok((file, _)) = path::open_judged(path, |real| real.starts_with(&self.root)) else {
            return Some(Reason::Unreadable);
        };
        let mut reader = AbortableFile { file, given_up: &self.given_up, is_failed: false };
        let file = path::display_path(&self.base, path);
        let mut lines = LineCollector { search: self, found, file, is_binary: false };
        let searched = searcher.search_reader(&self.pattern, &mut reader, &mut lines);
        match searched {
            Ok(()) => lines.is_binary.then_some(Reason::Binary),
            Err(_) if reader.is_failed => Some(Reason::Unreadable),
            // Only the limit of its buffer stops the searcher in this case.
            Err(_) => Some(Reason::LongLine),
        }
    }

    /// Returns a line, or the part of a long one around the beginning of the match.
    fn excerpt_line(&self, line: &[u8]) -> String {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let start = self.pattern.find(line).ok().flatten().map_or(0, |found| found.start());
        let before = String::from_utf8_lossy(&line[..start]).chars().count();
        let text = String::from_utf8_lossy(line);
        let from = if before + CHARS_BEFORE < MAX_LINE_CHARS {
            0
        } else {
            before.saturating_sub(CHARS_BEFORE)
        };
        let mut rest = text.chars().skip(from);
        let mut shown = if from > 0 { "…".to_owned() } else { String::new() };
        shown.extend(rest.by_ref().take(MAX_LINE_CHARS));
        if rest.next().is_some() {
            shown.push('…');
        }
        shown
    }
}

fn lock(filter: &Mutex<Filter>) -> MutexGuard<'_, Filter> {
    filter.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file that fails to read once the call was dropped.
struct AbortableFile<'a, R> {
    file: R,
    given_up: &'a CancelFlag,
    is_failed: bool,
}

impl<R: Read> Read for AbortableFile<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = if self.given_up.is_set() {
            Err(io::Error::other("the call was given up"))
        } else {
            self.file.read(buffer)
        };
        let is_again = |error: &io::Error| error.kind() == io::ErrorKind::Interrupted;
        self.is_failed |= read.as_ref().is_err_and(|error| !is_again(error));
        read
    }
}

/// Collector of the matching lines of a file.
struct LineCollector<'a> {
    search: &'a FileSearch,
    found: &'a mut SearchMatches,
    file: String,
    is_binary: bool,
}

impl Sink for LineCollector<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, line: &SinkMatch<'_>) -> io::Result<bool> {
        self.found.lines += 1;
        if self.found.matches.len() < self.search.max {
            let text = self.search.excerpt_line(line.bytes());
            let number = line.line_number();
            self.found.matches.push(json!({"file": self.file, "line": number, "text": text}));
        }
        Ok(true)
    }

    fn finish(&mut self, _: &Searcher, finish: &SinkFinish) -> io::Result<()> {
        self.is_binary = finish.binary_byte_offset().is_some();
        Ok(())
    }
}
