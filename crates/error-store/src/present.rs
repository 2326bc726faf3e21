//! The text that the model reads for a stored error, or for one that could not be stored.

use layer0::id::ErrorId;

use crate::{StoredError, Summary};

/// Maximum characters that the model reads of an error that could not be stored.
pub const FALLBACK_CHARS: usize = 500;

/// Returns the text for a stored error: a headline, its summary, its id and, if something was cut, how to read the
/// rest.
#[must_use]
pub fn stored_text(headline: &str, summary: &Summary, stored: &StoredError) -> String {
    let id: &ErrorId = &stored.id;
    let seen = match stored.occurrences {
        0 | 1 => String::new(),
        count => format!(" (seen {count} times)"),
    };
    let mut text = format!("{headline}{seen}\n[Error ID: {id}]");
    if summary.cut {
        text.push_str(&format!(
            "\nUse get_error_detail(error_id=\"{id}\") for the complete error."
        ));
    }
    text
}

/// Returns the text for an error that could not be stored: its first 500 characters, with a note if there are more.
#[must_use]
pub fn fallback_text(error: &str, code: Option<&str>) -> String {
    let (head, note) = match error.char_indices().nth(FALLBACK_CHARS) {
        None => (error, String::new()),
        Some((end, _)) => {
            let all = error.chars().count();
            let note = format!(
                "\n[Cut: {FALLBACK_CHARS} of {all} characters shown; the rest was not kept]"
            );
            (&error[..end], note)
        }
    };
    match code {
        Some(code) => format!("Tool error: {code} - {head}{note}"),
        None => format!("Error: {head}{note}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: S5, S8
    #[test]
    fn model_reads_how_to_get_the_rest() {
        let stored = |occurrences| StoredError { id: "err_1".into(), occurrences };
        let whole = Summary::from_error("Short error", None);
        let headline = "Tool 'X' failed: Short error";
        assert_eq!(
            stored_text(headline, &whole, &stored(1)),
            "Tool 'X' failed: Short error\n[Error ID: err_1]"
        );
        let cut = Summary::from_error("first\nsecond", None);
        assert_eq!(
            stored_text("Tool 'X' failed: first", &cut, &stored(3)),
            "Tool 'X' failed: first (seen 3 times)\n[Error ID: err_1]\n\
             Use get_error_detail(error_id=\"err_1\") for the complete error."
        );
    }

    /// Spec: S6
    #[test]
    fn a_cut_fallback_says_so() {
        let error = "ü".repeat(600);
        let note = "[Cut: 500 of 600 characters shown; the rest was not kept]";
        assert_eq!(fallback_text(&error, None), format!("Error: {}\n{note}", "ü".repeat(500)));
        assert_eq!(fallback_text(&error[..1_000], None), format!("Error: {}", "ü".repeat(500)));
        assert_eq!(fallback_text("x", Some("SQL_ERROR")), "Tool error: SQL_ERROR - x");
    }
}
