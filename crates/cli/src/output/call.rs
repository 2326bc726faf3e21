//! Calls in full, for a person's decision.

use std::collections::BTreeMap;

use layer0::JsonText;

use super::escape;

/// Longest arguments on the line of the tool's name, in characters.
const BESIDE: usize = 60;
/// Number of lines above which the first ones may be off the screen.
const A_SCREEN: usize = 20;
/// Beginning of a line of arguments; no text in them can imitate it.
const LINE: &str = "  | ";
/// Beginning of the rest of a line that is wider than the screen.
const REST: &str = "  > ";

/// The argument that holds the diff of a change.
const DIFF: &str = "diff";

/// Returns a call as text for a person: the tool, and every character of its arguments.
///
/// The arguments are JSON in which invisible characters are escaped; a diff follows them, line by line. With a `width`,
/// lines are broken before they reach it and after each `
/// ` of a text. Runs of blanks longer than a line are written `\s{80}`, those of line ends `\N{80}`.
pub(crate) fn call(tool: &str, arguments: &JsonText, width: Option<usize>) -> String {
    let tool = escape::line(tool);
    let (arguments, diff) = split_diff(arguments);
    let short = escape::strict_json(arguments.get());
    if short.chars().count() <= BESIDE && diff.is_none() {
        return format!("{tool} {short}");
    }
    let mut shown = vec![tool];
    let mut show = |text: &str| {
        for line in text.lines() {
            let parts = match width {
                Some(width) => broken(line, width.max(40) - LINE.len() - 1),
                None => vec![line.to_owned()],
            };
            let prefix = |index| if index == 0 { LINE } else { REST };
            let parts = parts.iter().enumerate();
            shown.extend(parts.map(|(at, part)| format!("{}{part}", prefix(at))));
        }
    };
    show(&escape::strict_json(&arguments.pretty()));
    if let Some(diff) = diff {
        let diff = diff.split_inclusive('\n').map(|line| line.strip_suffix('\n').unwrap_or(line));
        let diff: Vec<String> = diff.map(escape::strict_text).collect();
        show(&diff.join("\n"));
    }
    let lines = shown.len() - 1;
    if width.is_some() && lines > A_SCREEN {
        shown.push(format!("  ({lines} lines; scroll up to read all of them)"));
    }
    shown.join("\n")
}

/// Splits the diff from the other arguments.
fn split_diff(arguments: &JsonText) -> (JsonText, Option<String>) {
    let mut fields: BTreeMap<String, JsonText> = match arguments.read() {
        Ok(fields) => fields,
        Err(_) => return (arguments.clone(), None),
    };
    let diff = match fields.get(DIFF).and_then(JsonText::as_string) {
        Some(diff) if diff.contains('\n') => diff.into_owned(),
        _ => return (arguments.clone(), None),
    };
    fields.remove(DIFF);
    match JsonText::from_value(&fields) {
        Ok(rest) => (rest, Some(diff)),
        Err(_) => (arguments.clone(), None),
    }
}

/// Breaks a line of JSON into parts of at most `width` columns.
fn broken(line: &str, width: usize) -> Vec<String> {
    let (mut parts, mut part, mut columns) = (Vec::new(), String::new(), 0);
    let pieces = fold_repeats(&pieces(line), width);
    for (at, piece) in pieces.iter().enumerate() {
        let wide: usize = piece.chars().map(max_columns).sum();
        if columns + wide > width {
            // A word up to half a line stays whole.
            let keep = match part.rfind(' ') {
                Some(space) if space + 1 > part.len() / 2 => part.split_off(space + 1),
                _ => String::new(),
            };
            parts.push(std::mem::replace(&mut part, keep));
            columns = part.chars().map(max_columns).sum();
        }
        part.push_str(piece);
        columns += wide;
        let ends = piece.starts_with("\\n") && pieces.get(at + 1).is_some_and(|next| next != "\"");
        if ends {
            parts.push(std::mem::take(&mut part));
            columns = 0;
        }
    }
    if !part.is_empty() || parts.is_empty() {
        parts.push(part);
    }
    parts
}

/// Splits a line into characters and whole escapes.
fn pieces(line: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let length = match rest.as_bytes() {
            [b'\\', b'u', ..] => rest.len().min(6),
            [b'\\', _, ..] => 2,
            _ => first.len_utf8(),
        };
        let (piece, behind) = rest.split_at(length);
        pieces.push(piece);
        rest = behind;
    }
    pieces
}

/// Replaces long runs of blanks by their count, in an escape that JSON does not have.
fn fold_repeats(pieces: &[&str], width: usize) -> Vec<String> {
    let mut folded = Vec::new();
    for run in pieces.chunk_by(|a, b| a == b) {
        let (name, most) = match run[0] {
            " " => ("\\s", width),
            "\\n" => ("\\N", 3),
            "\\r" => ("\\R", 3),
            "\\t" => ("\\T", width / 2),
            _ => ("", usize::MAX),
        };
        match run.len() {
            count if count > most => folded.push(format!("{name}{{{count}}}")),
            _ => folded.extend(run.iter().map(|&piece| piece.to_owned())),
        }
    }
    folded
}

/// Returns an upper bound of the columns of a character: one for ASCII, two for others, which may be wide.
fn max_columns(c: char) -> usize {
    if c.is_ascii() { 1 } else { 2 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Spec: A1
    #[test]
    fn every_character_of_a_call_is_shown() {
        let hidden = format!("ls -la{}; rm -rf /", " ".repeat(80));
        let arguments: JsonText =
            json!({ "command": hidden, "note": "a\u{202e}b\u{1b}[2J\u{a0}" }).into();
        let piped = call("run\u{1b}]0;x", &arguments, None);
        assert!(piped.starts_with("run\\u001b]0;x\n"), "{piped}");
        assert!(piped.contains(&hidden), "{piped}");
        assert!(piped.contains(r"a\u202eb\u001b[2J\u00a0"), "{piped}");
        assert_eq!(call("t", &json!({ "order": 7 }).into(), Some(80)), "t {\"order\":7}");
    }

    #[test]
    fn a_call_fits_the_screen_and_loses_nothing() {
        let script = "set -e\necho \"one two\"\n".repeat(3) + &"word ".repeat(60) + &"ö".repeat(90);
        let arguments: JsonText =
            json!({ "script": script, "deep": [[["x\\n{5}\u{9b}"]]], "n": 1 }).into();
        for width in [40, 80, 133] {
            let shown = call("tool", &arguments, Some(width));
            let mut text = String::new();
            for line in shown.lines().skip(1) {
                let fits = line.chars().map(max_columns).sum::<usize>() < width;
                assert!(fits || line.contains("; scroll up"), "{line}");
                match (line.strip_prefix(LINE), line.strip_prefix(REST)) {
                    (Some(line), _) => text.extend(["\n", line]),
                    (_, Some(rest)) => text.push_str(rest),
                    _ => assert!(line.contains("lines; scroll up"), "{line}"),
                }
            }
            assert_eq!(JsonText::parse(&text).unwrap(), arguments, "{shown}");
        }
        assert!(call("tool", &arguments, Some(80)).contains("\\n\n  > echo"));
    }

    /// Spec: A1, N4
    #[test]
    fn a_diff_stands_below_the_arguments() {
        let diff = "--- a\n+++ a\n@@ -1 +1,2 @@\n-\t\"old\"\n+new \u{1b}[2J\u{a0}\n+\r\n";
        let arguments: JsonText = json!({ "path": "a", "content": "new", "diff": diff }).into();
        let shown = call("fs_write", &arguments, Some(80));
        let expected = [
            "fs_write",
            "  | {",
            r#"  |   "content": "new","#,
            r#"  |   "path": "a""#,
            "  | }",
            "  | --- a",
            "  | +++ a",
            "  | @@ -1 +1,2 @@",
            r#"  | -\t"old""#,
            r"  | +new \u001b[2J\u00a0",
            r"  | +\r",
        ];
        assert_eq!(shown.lines().collect::<Vec<_>>(), expected);
        // A `diff` that is not a text of several lines stays in the arguments.
        for diff in [json!("one line"), json!(["a\nb"])] {
            let short: JsonText = json!({ "diff": diff }).into();
            assert_eq!(call("t", &short, Some(80)), format!("t {short}"));
        }
    }

    #[test]
    fn blanks_cannot_push_the_rest_off_the_screen() {
        let text = format!("a{}b{}c", " ".repeat(9_000), "\n".repeat(9_000));
        let shown = call("tool", &json!({ "text": text }).into(), Some(80));
        assert!(shown.contains(r"a\s{9000}b\N{9000}"), "{shown}");
        assert!(shown.contains("c\""), "{shown}");
        assert!(shown.lines().count() < 8, "{shown}");
    }
}
