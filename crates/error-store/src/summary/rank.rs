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
    // The text of a failure may name a warning: `FAILED test_a.py - UserWarning: late`.
    let is_failure = starts(LABELS) || is_case(&head) || has_type(&head);
    if !head.contains(char::is_alphanumeric) {
        Rank::Signs
    } else if is_heading(&head)
        || starts(NOISE_STARTS)
        || !is_failure && is_warning(&head)
        || is_excerpt(&head)
        || is_count(&head)
    {
        Rank::Noise
    } else if contains(CLOSINGS) || head.starts_with("fail ") {
        Rank::Closing
    } else if is_failure || contains(LABELS_INSIDE) {
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

/// Returns whether a line warns: whether the first label in it is that of a warning.
fn is_warning(head: &str) -> bool {
    let first = |labels: &[&str]| labels.iter().filter_map(|label| head.find(label)).min();
    let Some(warning) = first(WARNINGS_INSIDE) else { return false };
    !head.starts_with("fail ") && first(LABELS_INSIDE).is_none_or(|failure| warning < failure)
}

/// Returns whether a line of a log reports a failure, by its level behind a time: `2026-03-10T14:00:01Z ERROR lost`.
fn log_level(line: &str) -> Option<bool> {
    let mut words = line.split_whitespace().take(4);
    if !is_time(words.next()?) {
        return None;
    }
    words.find_map(|word| {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric());
        LEVELS.iter().find(|(level, _)| *level == word).map(|(_, is_failure)| *is_failure)
    })
}

/// Returns whether a word is a date, a time of day, or the seconds since 1970.
fn is_time(word: &str) -> bool {
    const SECONDS_DIGITS: usize = 10;
    let numbers: Vec<&str> = word.split(|c: char| !c.is_ascii_digit()).collect();
    let is_number = |at: usize| numbers.get(at).is_some_and(|number| !number.is_empty());
    let separator = word.trim_start_matches(|c: char| c.is_ascii_digit()).chars().next();
    match separator {
        // `14:00:01,123` or `14:00`, but not the place `12:5`.
        Some(':') => numbers[0].len() == 2 && numbers[1].len() == 2,
        // `2026-03-10T14:00:01Z`, `10.03.2026`, but not the version `1.2.3`.
        Some('-' | '/' | '.') if (0..3).all(is_number) => {
            [0, 2].into_iter().any(|at| numbers[at].len() == 4)
        }
        None | Some('.') => is_number(0) && numbers[0].len() >= SECONDS_DIGITS,
        Some(_) => false,
    }
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

/// Returns whether a line starts with the type of an error, `ValueError: bad`, or with a code of this system,
/// `env.network_denied: host a.example`.
fn has_type(head: &str) -> bool {
    let Some((name, _)) = head.split_once(':') else { return false };
    if layer0::code::find(name).is_some() {
        return true;
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: S4
    #[test]
    fn failures_that_name_a_warning_are_failures() {
        for line in [
            "FAILED tests/test_a.py::test_b - UserWarning: late",
            "ERROR tests/test_a.py - DeprecationWarning: invalid escape",
            "Error: RuntimeWarning: invalid value",
            "ValueError: got ResourceWarning: unclosed file",
            "ts=1 level=error msg=\"UserWarning: late\"",
            "a.c:3: error: FutureWarning: x",
        ] {
            assert_eq!(rank(line), Rank::Failure, "{line}");
        }
        assert_eq!(rank("FAIL src/a.test.js > SyntaxWarning: x"), Rank::Closing);
        for line in [
            "/a.py:3: UserWarning: error: late",
            "a.c:3: warning: fatal error: x",
            "ts=1 level=warn msg=\"peer: error: gone\"",
        ] {
            assert_eq!(rank(line), Rank::Noise, "{line}");
        }
    }

    /// Spec: S4
    #[test]
    fn levels_stand_behind_a_time() {
        for (line, expected) in [
            ("2026-03-10T14:00:01Z INFO lost", Some(false)),
            ("2026/03/10 14:00:01 ERROR lost", Some(true)),
            ("10.03.2026 14:00:01 ERROR lost", Some(true)),
            ("14:00:01,123 WARNING lost", Some(false)),
            ("14:00 ERROR lost", Some(true)),
            ("1773151201.123 FATAL lost", Some(true)),
            ("1773151201123 FATAL lost", Some(true)),
            ("3 WARNING lines: cannot build", None),
            ("2nd INFO file not found", None),
            ("1.2.3 INFO is no valid version", None),
            ("12:5 ERROR is unknown", None),
            ("404 ERROR", None),
            ("3: ERROR", None),
        ] {
            assert_eq!(log_level(line), expected, "{line}");
        }
    }
}
