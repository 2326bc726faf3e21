//! The visible characters of a line.

/// Maximum characters read from a line: a summary has no room for more.
const MAX_READ: usize = 800;

/// Maximum bytes of escape sequences that are removed in one place without leaving a space: redaction does not search
/// for a secret across a longer gap.
const MAX_HIDDEN: usize = 256;

/// Removes invisible characters, and white space at the ends.
pub(super) fn clean(line: &str) -> String {
    visible(line).collect::<String>().trim().to_owned()
}

/// Removes escape sequences, and replaces control characters with spaces.
pub(super) fn visible(line: &str) -> impl Iterator<Item = char> {
    let is_blank = |c: char| c.is_whitespace() || is_hidden(c);
    let mut chars = line.trim_start_matches(is_blank).chars();
    let mut budget = MAX_READ;
    let mut hidden = 0;
    std::iter::from_fn(move || {
        while budget > 0 {
            budget -= 1;
            let before = chars.as_str().len();
            match chars.next()? {
                '\u{1b}' => skip_escape(&mut chars),
                '\u{9b}' => skip_parameters(&mut chars),
                c => {
                    hidden = 0;
                    return Some(if c.is_control() || is_hidden(c) { ' ' } else { c });
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

/// Returns whether a character has no width, or changes the direction of those behind it. A space takes its place: a
/// secret that it divides must not be joined.
const fn is_hidden(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Skips the rest of an escape sequence (ECMA-48): `ESC [ … letter`, a string such as `ESC ] … BEL`
/// or `ESC ] … ESC \`, or `ESC`, intermediates and one final character.
fn skip_escape(chars: &mut std::str::Chars<'_>) {
    match chars.next() {
        Some('[') => skip_parameters(chars),
        Some(']' | 'P' | 'X' | '^' | '_') => {
            while let Some(c) = chars.next() {
                match c {
                    '\u{7}' | '\u{9c}' => return,
                    '\u{1b}' => {
                        let _end = chars.next();
                        return;
                    }
                    _ => {}
                }
            }
        }
        Some(' '..='/') => {
            let _final = chars.find(|c| !(' '..='/').contains(c));
        }
        _ => {}
    }
}

fn skip_parameters(chars: &mut std::str::Chars<'_>) {
    let _final = chars.find(|c| ('\u{40}'..='\u{7e}').contains(c));
}
