//! Ranking of lines of output by how much they show about a failure.

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

/// Lines that only announce an error, such as `### Error` in Markdown.
const HEADINGS: &[&str] = &[
    "error",
    "errors",
    "exception",
    "fail",
    "failed",
    "failure",
    "failures",
    "stack trace",
    "require stack",
    "what went wrong",
    "short test summary info",
];

/// Prefixes of lines that are not failures.
const NOISE_STARTS: &[&str] = &[
    "at ",
    "from ",
    "file \"",
    "note:",
    "= note",
    "hint:",
    "help:",
    "warning",
    "[warning",
    "[warn]",
    "warn ",
    "warn:",
    "info ",
    "info:",
    "[info]",
    "debug ",
    "debug:",
    "[debug]",
    "+ ",
    "# ",
    "--> ",
    "=== run",
    "--- pass",
    "for more information",
    "for further information",
    "(background on",
    "(use `",
    "npm notice",
    "php warning",
    "php notice",
    "php deprecated",
    "traceback",
    "line ",
];

/// Lines that only close a failure reported before them.
const CLOSINGS: &[&str] = &[
    "could not compile",
    "aborting due to",
    "build failed",
    "build failure",
    "compilation error",
    "compilation failed",
    "failed to execute goal",
    "] error ",
    "ld returned",
    "exit status",
    "exit code",
    "process completed with",
    "test failed, to rerun",
    "test result:",
    "command failed",
    "build stopped",
    "errors occurred",
    "[help 1]",
    "failed to push some refs",
    "automatic merge failed",
    " passed",
    "is not recoverable",
    "errors generated",
    "error generated",
];

/// Labels at the start of a failure.
const LABELS: &[&str] = &[
    "error:",
    "error[",
    "error ",
    "err:",
    "[error]",
    "fatal:",
    "fatal error",
    "panic:",
    "critical:",
    "parse error",
    "syntax error",
    "segmentation fault",
    "exception in thread",
    "unhandled exception",
    "uncaught",
    "--- fail",
    "●",
    "cmake error",
    "conflict (",
    "! [rejected]",
];

/// Labels that follow a place or the name of a program.
const LABELS_INSIDE: &[&str] = &[
    ": error:",
    ": error ",
    "): error",
    " error: ",
    ": fatal error:",
    "fatal error:",
    ": fatal:",
    "*** no rule",
];

/// Words that describe failures.
const MENTIONS: &[&str] = &[
    ": no ",
    "abort",
    "can't",
    "cannot",
    "conflict",
    "could not",
    "couldn't",
    "denied",
    "does not exist",
    "doesn't exist",
    "error",
    "exception",
    "expected",
    "fail",
    "fatal",
    "forbidden",
    "invalid",
    "is not recognized",
    "killed",
    "missing",
    "no such",
    "no valid",
    "nothing to commit",
    "not found",
    "not permitted",
    "panic",
    "refused",
    "rejected",
    "timed out",
    "timeout",
    "unable to",
    "unauthorized",
    "undefined",
    "unexpected",
    "unknown",
    "unreachable",
    "violates",
];

/// The prefixes of the lines of an npm error.
const NPM: &[&str] = &["npm error", "npm ERR!"];

/// Parts of an npm error that are meant for programs.
const NPM_FIELDS: &[&str] = &["code ", "errno ", "syscall ", "path ", "cwd ", "a complete log "];

/// Returns the rank of a line without invisible characters.
pub(super) fn rank(line: &str) -> Rank {
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
    } else if is_heading(&head) || starts(NOISE_STARTS) || is_excerpt(&head) {
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
