//! One-line summaries of errors.

mod json;
mod line;
mod log_entry;
mod rank;
mod visible;
mod words;

use self::json::json_message;
use self::line::telling_line;
use self::visible::{clean, visible};

/// Maximum characters of a summary, including the ellipsis.
pub const MAX_SUMMARY_CHARS: usize = 100;

const ELLIPSIS: &str = "...";

/// A one-line summary of an error.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// At most [`MAX_SUMMARY_CHARS`] characters, on one line.
    pub text: String,
    /// Whether the error has more text than the summary shows.
    pub cut: bool,
    /// Number of the summary's characters that come from the error.
    pub own_chars: usize,
}

impl Summary {
    /// Summarises an error's text, with the tool author's code if there is one.
    ///
    /// Uses the first line that names the failure, else the first line with any content; from a Python traceback the
    /// exception, from a Rust panic the message, from a JSON object its message. A line that only announces the failure
    /// is joined with the next one. Colours and control characters are removed.
    ///
    /// ```
    /// use backstop_error_store::Summary;
    ///
    /// let error = "\n\u{1b}[31mSyntax error near 'FROM'\u{1b}[0m\n  at line 2\n  at line 3";
    /// let summary = Summary::from_error(error, Some("SQL_ERROR"));
    /// assert_eq!(summary.text, "Code SQL_ERROR: Syntax error near 'FROM'");
    /// assert!(summary.cut);
    /// ```
    #[must_use]
    pub fn from_error(error: &str, code: Option<&str>) -> Self {
        let message = json_message(error);
        let text = message.as_deref().unwrap_or(error);
        let line = telling_line(text);
        // Removed colours do not count as cut.
        let one_line = text.trim().lines().nth(1).is_none() && text.len() <= 4 * MAX_SUMMARY_CHARS;
        let whole = line == text.trim() || one_line && line == clean(text.trim());
        let cut = message.is_some() || !whole;
        let before = match code {
            Some(code) if line.is_empty() => format!("Code {}", clean(code)),
            Some(code) => format!("Code {}: ", clean(code)),
            None => String::new(),
        };
        let before_chars = before.chars().count();
        let line = before + &line;
        let own = |shown: usize| shown.saturating_sub(before_chars);
        match line.char_indices().nth(MAX_SUMMARY_CHARS) {
            None => Self { own_chars: own(line.chars().count()), text: line, cut },
            Some(_) => {
                let keep = MAX_SUMMARY_CHARS - ELLIPSIS.len();
                let end = line.char_indices().nth(keep).map_or(line.len(), |(at, _)| at);
                let own_chars = own(keep);
                Self { text: format!("{}{ELLIPSIS}", line[..end].trim_end()), cut: true, own_chars }
            }
        }
    }
}

/// Returns a summary unchanged if it is not too long and has no invisible characters, else its beginning.
pub(crate) fn one_line(summary: &str) -> String {
    let is_one =
        visible(summary).eq(summary.chars()) && summary.chars().nth(MAX_SUMMARY_CHARS).is_none();
    if is_one { summary.to_owned() } else { Summary::from_error(summary, None).text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Spec: S4
    #[test]
    fn the_line_that_says_most_is_taken() {
        #[track_caller]
        fn check(error: &str, code: Option<&str>, text: &str, cut: bool) {
            let summary = Summary::from_error(error, code);
            assert_eq!((summary.text.as_str(), summary.cut), (text, cut));
        }
        check("Short error", None, "Short error", false);
        check("Short error\n", None, "Short error", false);
        check(
            "connection timeout after 30 seconds",
            None,
            "connection timeout after 30 seconds",
            false,
        );
        check(
            "Syntax error near 'FROM'\nline 2",
            Some("SQL_ERROR"),
            "Code SQL_ERROR: Syntax error near 'FROM'",
            true,
        );
        check("\n\n ---- \n\u{1b}[1;31mboom\u{1b}[0m\u{7}", None, "boom", true);
        check(
            "Traceback (most recent call last):\n  File \"a.py\", line 1\nValueError: bad\n\n",
            None,
            "ValueError: bad",
            true,
        );
        check(
            "thread 'main' panicked at src/main.rs:2:5:\nindex out of bounds\nnote: run",
            None,
            "index out of bounds",
            true,
        );
        check(
            r#"{"error": {"message": "no such table"}, "trace": [1, 2]}"#,
            None,
            "no such table",
            true,
        );
        check(
            "log\nthread 'main' panicked at src/main.rs:2:5:\nindex out of bounds",
            None,
            "index out of bounds",
            true,
        );
        check("thread 'main' panicked at 'boom', src/main.rs:2", None, "boom", true);
        check("\u{1b}(B\u{1b}[mError: real", None, "Error: real", false);
        check("### Error\nError: no element `#go`\n", None, "Error: no element `#go`", true);
        check("**Error:**\n\nthe disk is full", None, "the disk is full", true);
        check("Error\n----\n", None, "Error", true);
        check("\u{1b}]0;title\u{1b}\\boom", None, "boom", false);
        check("\u{1b}[31mred\u{1b}[0m", None, "red", false);
        check("???", None, "???", false);
        check("", None, "", false);
        check(&"é".repeat(100), None, &"é".repeat(100), false);
        check(&"é".repeat(101), None, &format!("{}...", "é".repeat(97)), true);
    }

    /// Redaction finds no secret over such a gap, so that a summary must not join what is around it.
    ///
    /// Spec: S4, S9
    #[test]
    fn long_hidden_runs_are_a_gap() {
        for (hidden, text) in [
            ("\u{1b}[0m".repeat(64), "ab"),
            ("\u{1b}[0m".repeat(65), "a b"),
            (format!("\u{1b}]0;{}\u{7}", "t".repeat(2_000)), "a b"),
            (format!("\u{9b}{}m", "0".repeat(300)), "a b"),
        ] {
            assert_eq!(Summary::from_error(&format!("a{hidden}b"), None).text, text);
        }
    }

    /// Spec: S4
    #[test]
    fn invisible_characters_are_in_no_summary() {
        for (error, text) in [
            ("card de\u{ad}clined\u{2028}by\u{61c}the bank", "card de clined by the bank"),
            ("boom\u{e0041}\u{e0042}", "boom"),
            ("\u{9d}0;title\u{9c}boom", "boom"),
            ("\u{90}1$r\u{1b}\\boom", "boom"),
            // A joiner inside an emoji has an effect that is seen.
            ("boom 👩\u{200d}🚒!", "boom 👩\u{200d}🚒!"),
        ] {
            assert_eq!(Summary::from_error(error, None).text, text);
            assert_eq!(one_line(error), text);
            let entry = serde_json::json!({"level": "error", "msg": error}).to_string();
            assert_eq!(Summary::from_error(&format!("x\n{entry}"), None).text, text);
        }
    }

    /// Spec: S4
    #[test]
    fn long_log_entries_show_their_messages() {
        let stack = "at f (a.js:1:1) ".repeat(100);
        let entry = |level: &str, message: &str| {
            format!(r#"{{"stack": "{stack}", "level": "{level}", "msg": "{message}"}}"#)
        };
        let error = format!(
            "{}\n{}\nstopped",
            entry("info", "errors are reported"),
            entry("error", "snapshot is older than its base")
        );
        assert_eq!(Summary::from_error(&error, None).text, "snapshot is older than its base");
    }

    proptest! {
        /// Spec: S4
        #[test]
        fn a_summary_is_one_bounded_line(error in any::<String>(), code in proptest::option::of(".{0,200}")) {
            let summary = Summary::from_error(&error, code.as_deref());
            prop_assert!(summary.text.chars().count() <= MAX_SUMMARY_CHARS);
            prop_assert!(!summary.text.chars().any(char::is_control));
        }
    }
}
