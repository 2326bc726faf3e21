//! Choice of the line of an error's text that describes the failure.

use super::log_entry::log_entry;
use super::rank::{Rank, is_source_warning, rank};
use super::visible::clean;

/// Number of lines that are examined at either end of a text.
const MAX_LINES: usize = 1_000;

/// Number of bytes that fill a summary.
const ENOUGH_BYTES: usize = 400;

const TRACEBACK: &str = "Traceback (most recent call last):";

/// Returns the line that describes the failure, without invisible characters.
pub(super) fn telling_line(text: &str) -> String {
    if let Some(exception) = last_exception(text) {
        return exception;
    }
    if let Some(message) = panic_message(text) {
        return clean(message);
    }
    let lines = ends(text);
    let ranked = lines.iter().enumerate().map(|(at, line)| {
        let before = at.checked_sub(1).and_then(|before| lines.get(before));
        (line.rank_behind(before), at)
    });
    // The first of the lines with the highest rank.
    let best = ranked.max_by(|(rank, at), (other, behind)| rank.cmp(other).then(behind.cmp(at)));
    let Some((_, at)) = best else { return String::new() };
    match &lines[at].entry {
        Some((message, _)) => clean(message),
        None => with_details(lines[at..].iter().map(|line| line.shown.as_str())),
    }
}

/// A line of an output.
struct OutputLine {
    /// Its first characters, without invisible ones.
    shown: String,
    /// The message of an entry of a log in JSON, and whether it reports a failure.
    entry: Option<(String, bool)>,
}

impl OutputLine {
    fn new(line: &str) -> Self {
        let shown = clean(line);
        // An entry may be longer than what is shown of a line.
        Self { entry: log_entry(line.trim()).or_else(|| log_entry(&shown)), shown }
    }

    /// Returns the rank of the line behind another one: one behind a warning of Python is its source.
    fn rank_behind(&self, before: Option<&Self>) -> Rank {
        match self.entry {
            Some((_, true)) => return Rank::Failure,
            Some((_, false)) => return Rank::Noise,
            None => {}
        }
        match rank(&self.shown) {
            Rank::Plain if before.is_some_and(|before| is_source_warning(&before.shown)) => {
                Rank::Noise
            }
            rank => rank,
        }
    }
}

/// Returns whether a line shows less about a failure than another one.
pub(super) fn says_less(line: &str, other: &str) -> bool {
    let shown = rank(line);
    shown < Rank::Mention && shown < rank(other)
}

/// Returns the first and the last lines of a text that have any characters, without invisible ones.
fn ends(text: &str) -> Vec<OutputLine> {
    let lines = || text.split('\n').map(last_shown).filter(|line| !line.trim().is_empty());
    let mut ends: Vec<&str> = lines().take(MAX_LINES).collect();
    if ends.len() == MAX_LINES {
        let from = ends[MAX_LINES - 1].as_ptr();
        let tail = lines().rev().take(MAX_LINES).take_while(|line| line.as_ptr() > from);
        let tail: Vec<&str> = tail.collect();
        ends.extend(tail.into_iter().rev());
    }
    ends.into_iter().map(OutputLine::new).collect()
}

/// Returns the part of a line that a terminal shows at the end: a carriage return starts the line again. `curl` ends
/// its progress meter without one.
fn last_shown(line: &str) -> &str {
    let line = line.rsplit('\r').find(|shown| !clean(shown).is_empty()).unwrap_or(line);
    line.find("curl: (").map_or(line, |at| &line[at..])
}

/// Returns a line, followed by its details if it only announces them.
fn with_details<'a>(mut lines: impl Iterator<Item = &'a str>) -> String {
    let Some(line) = lines.next() else { return String::new() };
    let details = if line.contains(" validation error") {
        2
    } else {
        usize::from(line.ends_with(':') || line.starts_with("--- FAIL") || line.starts_with('●'))
    };
    let mut line = line.trim_start_matches(['│', ' ']).to_owned();
    for detail in lines.take(details) {
        if line.len() > ENOUGH_BYTES {
            break;
        }
        line = line + " " + detail;
    }
    line
}

/// Returns the exception at the end of the last Python traceback: the first line after its frames, which are indented.
fn last_exception(text: &str) -> Option<String> {
    let (_, frames) = text.rsplit_once(TRACEBACK)?;
    let behind = frames
        .lines()
        .skip_while(|line| line.starts_with([' ', '\t']) || clean(line).is_empty())
        .take(3);
    let said: Vec<String> = behind.map(clean).collect();
    if said.is_empty() {
        return named_exception(text);
    }
    Some(with_details(said.iter().map(String::as_str)))
}

/// Returns the first exception that a text names, else its last line. The lines of an exception group are framed by
/// punctuation.
fn named_exception(text: &str) -> Option<String> {
    let is_frame = |c: char| c.is_whitespace() || matches!(c, '|' | '+' | '-');
    let mut lines = text.lines().map(|line| clean(line.trim_start_matches(is_frame)));
    let named = lines.clone().find(|line| rank(line) == Rank::Failure);
    named.or_else(|| lines.rfind(|line| rank(line) > Rank::Noise))
}

/// Returns the message of a Rust panic: the line after `panicked at src/main.rs:2:5:`, or, until Rust 1.73, the quoted
/// text before the place.
fn panic_message(text: &str) -> Option<&str> {
    if !text.contains("panicked at ") {
        return None;
    }
    let mut lines = text.lines();
    let at = lines.by_ref().find(|line| line.contains("panicked at "))?;
    let place = at.split_once("panicked at ")?.1;
    match place.strip_prefix('\'').and_then(|quoted| quoted.rsplit_once("', ")) {
        Some((message, _)) => Some(message),
        None if at.trim_end().ends_with(':') => lines.find(|line| rank(&clean(line)) > Rank::Signs),
        None => None,
    }
}
