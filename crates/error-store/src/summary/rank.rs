//! Ranking of lines of output by how much they show about a failure.

use super::words::{
    CLOSINGS, HEADINGS, LABELS, LABELS_INSIDE, LEVELS, MENTIONS, NOISE_STARTS, NPM, NPM_FIELDS,
    WARNINGS_INSIDE,
};

/// The rank of a line, lowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// Only punctuation.
    Signs,
    /// A heading, a stack frame, a warning or a source excerpt.
    Noise,
    /// Words that do not describe a failure.
    Plain,
    /// A line which only reports that something failed, at the end of the failure's output.
    Closing,
    /// Words that describe failures.
    Mention,
    /// The failure, under a label such as `error:`.
    Failure,
}

/// Number of bytes of a line that are examined.
const MAX_HEAD: usize = 256;

/// Returns the rank of a line without invisible characters.
pub(super) fn rank(line: &str) -> Rank {
    if let Some(is_failure) = log_level(line) {
        return if is_failure { Rank::Failure } else { Rank::Noise };
    }
    match NPM.iter().find_map(|npm| line.strip_prefix(npm)) {
        None => rank_words(line),
        Some(rest) => match rest.trim_start().to_lowercase() {
            rest if rest.is_empty() => Rank::Signs,
            rest if NPM_FIELDS.iter().any(|field| rest.starts_with(field)) => Rank::Noise,
            rest => rank_words(&rest).max(Rank::Mention),
        },
    }
}

fn rank_words(line: &str) -> Rank {
    let line = line.trim_start_matches(|c: char| c.is_whitespace() || c == '│');
    let head = line[..line.floor_char_boundary(MAX_HEAD)].to_lowercase();
    let starts = |all: &[&str]| all.iter().any(|it| head.starts_with(it));
    let contains = |all: &[&str]| all.iter().any(|it| head.contains(it));
    if !head.contains(char::is_alphanumeric) {
        Rank::Signs
    } else if is_heading(&head)
        || starts(NOISE_STARTS)
        || contains(WARNINGS_INSIDE)
        || is_excerpt(&head)
        || is_count(&head)
    {
        Rank::Noise
    } else if contains(CLOSINGS) || head.starts_with("fail ") {
        Rank::Closing
    } else if starts(LABELS) || contains(LABELS_INSIDE) || is_case(&head) || has_type(&head) {
        Rank::Failure
    } else if MENTIONS.iter().any(|word| has_word(&head, word)) && !counts_none(&head) {
        Rank::Mention
    } else {
        Rank::Plain
    }
}

fn is_heading(head: &str) -> bool {
    HEADINGS.contains(&head.trim_matches(|c: char| !c.is_alphanumeric()))
}

/// Returns whether a line of a log reports a failure, by its level behind a time: `2026-03-10T14:00:01Z ERROR lost`.
fn log_level(line: &str) -> Option<bool> {
    let mut words = line.split_whitespace().take(4);
    if !words.next()?.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    words.find_map(|word| {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric());
        LEVELS.iter().find(|(level, _)| *level == word).map(|(_, is_failure)| *is_failure)
    })
}

/// Returns whether a line is a warning of Python, which shows the line of the source behind it:
/// `/work/a.py:3: UserWarning: x`.
pub(super) fn is_source_warning(line: &str) -> bool {
    let Some((place, _)) = line.split_once("Warning: ") else { return false };
    let number = place.rsplit_once(": ").and_then(|(place, _)| place.rsplit_once(':'));
    number.is_some_and(|(_, number)| number.parse::<u32>().is_ok())
}

/// Returns whether a line only counts failures: `Found 1 error.`, `There was 1 failure:`, `1 failing`.
fn is_count(head: &str) -> bool {
    let words = || head.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let is_counted = |word: &str| {
        matches!(word, "error" | "errors" | "failed" | "failing" | "failure" | "failures")
    };
    let is_between = |word: &str| matches!(word, "found" | "there" | "was" | "were");
    words().count() <= 4
        && words().any(|word| word.parse::<u32>().is_ok())
        && words().any(is_counted)
        && words().all(|word| is_counted(word) || is_between(word) || word.parse::<u32>().is_ok())
}

/// Returns whether a line is a numbered source line: `3 | let total = 2;`.
fn is_excerpt(head: &str) -> bool {
    head.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ').starts_with("| ")
}

/// Returns whether a line names a failed test and the reason.
fn is_case(head: &str) -> bool {
    head.starts_with("failed ") && head.contains(" - ")
}

/// Returns whether a line starts with the type of an error: `ValueError: bad`.
fn has_type(head: &str) -> bool {
    let Some((name, _)) = head.split_once(':') else { return false };
    let name = name.split_once(" [err_").map_or(name, |(name, _)| name);
    !name.contains(' ')
        && ["error", "exception", "exceptiongroup"].iter().any(|end| name.ends_with(end))
}

/// Returns whether a line has a word, possibly with a suffix, that is not part of an identifier: `timeout_ms`.
fn has_word(head: &str, word: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    // The word may also end the name of a type: `RuntimeError`.
    let ends_type = matches!(word, "error" | "exception");
    let begins_word = |at: usize| {
        let before = &head[..at];
        !word.starts_with(is_name)
            || !before.ends_with(is_name)
            || ends_type && !before.ends_with('_')
    };
    let ends_name = |at: usize| head[at + word.len()..].starts_with('_');
    head.match_indices(word).any(|(at, _)| begins_word(at) && !ends_name(at))
}

/// Returns whether a line reports a count of zero failures.
fn counts_none(head: &str) -> bool {
    let is_apart = |at: usize| !head[..at].ends_with(|c: char| c.is_alphanumeric());
    ["0 error", "0 fail", "no error", "no fail"]
        .iter()
        .any(|none| head.match_indices(none).any(|(at, _)| is_apart(at)))
}
