//! The visible characters of a line.

use backstop_event_log::{is_harmful, is_joiner_needed};

/// Maximum characters read from a line: a summary has no room for more.
const MAX_READ: usize = 800;

/// Maximum bytes of escape sequences that are removed in one place without leaving a space: redaction does not search
/// for a secret across a longer gap.
const MAX_HIDDEN: usize = 256;

/// Removes invisible characters, and white space at the ends.
pub(super) fn clean(line: &str) -> String {
    visible(line).collect::<String>().trim().to_owned()
}

/// Removes escape sequences, and replaces [harmful](is_harmful) characters with spaces: a secret that one divides must
/// not be joined.
pub(super) fn visible(line: &str) -> impl Iterator<Item = char> {
    let is_blank = |c: char| c.is_whitespace() || is_harmful(c) && !c.is_control();
    let mut chars = line.trim_start_matches(is_blank).chars();
    let mut budget = MAX_READ;
    let (mut hidden, mut shown) = (0, None);
    std::iter::from_fn(move || {
        while budget > 0 {
            budget -= 1;
            let before = chars.as_str().len();
            match chars.next()? {
                '\u{1b}' => skip_escape(&mut chars),
                '\u{9b}' => skip_parameters(&mut chars),
                '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}' => skip_string(&mut chars),
                c => {
                    hidden = 0;
                    let after = chars.clone().next();
                    let is_shown = !is_harmful(c) || is_joiner_needed(shown, c, after);
                    shown = Some(if is_shown { c } else { ' ' });
                    return shown;
                }
            }
            hidden += before - chars.as_str().len();
            if hidden > MAX_HIDDEN {
                hidden = 0;
                return Some(' ');
            }
        }
        None
    })
}

/// Skips the rest of an escape sequence (ECMA-48): `ESC [ … letter`, a string such as `ESC ] … BEL`
/// or `ESC ] … ESC \`, or `ESC`, intermediates and one final character.
fn skip_escape(chars: &mut std::str::Chars<'_>) {
    match chars.next() {
        Some('[') => skip_parameters(chars),
        Some(']' | 'P' | 'X' | '^' | '_') => skip_string(chars),
        Some(' '..='/') => {
            let _final = chars.find(|c| !(' '..='/').contains(c));
        }
        _ => {}
    }
}

/// Skips the rest of a control string, up to `BEL`, `ST` or `ESC \`.
fn skip_string(chars: &mut std::str::Chars<'_>) {
    if chars.find(|c| matches!(c, '\u{7}' | '\u{9c}' | '\u{1b}')) == Some('\u{1b}') {
        let _end = chars.next();
    }
}

fn skip_parameters(chars: &mut std::str::Chars<'_>) {
    let _final = chars.find(|c| ('\u{40}'..='\u{7e}').contains(c));
}
