//! Text from outside in a line.

use crate::escape::{is_harmful, is_joiner_needed};

/// Maximum characters of one text in a line.
const MAX_TEXT: usize = 100;

/// Folds white space and control characters into single spaces, and removes [harmful](is_harmful) characters except
/// joiners that the script needs.
#[must_use]
pub fn one_line(text: &str) -> String {
    fold(text, usize::MAX).0
}

/// Shortens a text that is too long for its place in a line.
pub(super) fn brief(text: &str) -> String {
    cut(text, MAX_TEXT)
}

/// Folds a text into one line of at most `max` characters.
pub(super) fn cut(text: &str, max: usize) -> String {
    let (line, count) = fold(text, max);
    if count <= max {
        return line;
    }
    let kept: String = line.chars().take(max - 1).collect();
    format!("{}…", kept.trim_end())
}

/// Returns the first characters of a text in one line, and their number: at most two more than `max`.
fn fold(text: &str, max: usize) -> (String, usize) {
    let (mut line, mut count) = (String::new(), 0);
    let (mut before, mut is_behind_space) = (None, false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c.is_whitespace() || c.is_control() {
            (before, is_behind_space) = (None, true);
            continue;
        }
        if is_harmful(c) && !is_joiner_needed(before, c, chars.peek().copied()) {
            continue;
        }
        if std::mem::take(&mut is_behind_space) && !line.is_empty() {
            line.push(' ');
            count += 1;
        }
        line.push(c);
        count += 1;
        before = Some(c);
        if count > max {
            break;
        }
    }
    (line, count)
}

#[cfg(test)]
mod tests {
    use layer0::event::{EventKind, RunReopened, SignalReceived, ToolFailure, ToolResponded};
    use serde_json::Value;

    use super::*;
    use crate::trace::describe;

    fn failure(text: &str) -> String {
        let failure = ToolFailure::new("tool.execution_failed", text);
        let answer = ToolResponded::failure("c1".into(), "pay".into(), text, 1, failure);
        describe(&EventKind::from(answer))
    }

    /// Spec: D10
    #[test]
    fn harmful_characters_stay_out_of_lines() {
        let line =
            failure("card \u{e0041}de\u{200b}cl\u{200f}in\u{61c}ed\u{feff}\u{202e}\u{1b}[2J");
        assert!(line.ends_with(": card declined [2J"), "{line}");
        let joined = "👨\u{200d}👩 می\u{200c}خواهم";
        assert_eq!(one_line(&format!("{joined} r\u{200d}m")), format!("{joined} rm"));
    }

    /// Spec: D10
    #[test]
    fn words_behind_blanks_are_seen() {
        let line = failure(&format!("{}card declined", " \n\u{200b}".repeat(4_100)));
        assert!(line.ends_with(": card declined"), "{line}");
    }

    /// Spec: D10
    #[test]
    fn lines_have_a_bound() {
        let long = "word ".repeat(20_000);
        let mut reopened = RunReopened::new("ops", None);
        reopened.message = Some(long.as_str().into());
        let signal = SignalReceived::new(long.as_str(), Value::Null);
        for kind in [EventKind::from(reopened), signal.into()] {
            let line = describe(&kind);
            assert!(line.ends_with('…') && line.chars().count() < 120, "{line}");
        }
        assert_eq!(cut(&"ab ".repeat(3), 5), "ab a…");
        assert_eq!(cut("ab ab ", 5), "ab ab");
    }
}
