//! Failure messages of programs and servers, cut to a limit.

/// Limit of the kept text, in characters.
const MAX_CHARS: usize = 2_000;

/// Returns the end of a text after a colon; an empty text if it is blank.
pub(super) fn format_end(text: &str) -> String {
    let text = text.trim();
    let cut = text.char_indices().rev().nth(MAX_CHARS - 1).map_or(0, |(at, _)| at);
    match (text.is_empty(), cut) {
        (true, _) => String::new(),
        (false, 0) => format!(": {text}"),
        (false, cut) => format!(": …{}", &text[cut..]),
    }
}

/// Returns the beginning of a text after a colon; an empty text if it is blank.
pub(super) fn format_beginning(text: &str) -> String {
    let text = text.trim();
    match (text.is_empty(), text.char_indices().nth(MAX_CHARS)) {
        (true, _) => String::new(),
        (false, None) => format!(": {text}"),
        (false, Some((cut, _))) => format!(": {}…", &text[..cut]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: X8
    #[test]
    fn text_is_cut_between_characters() {
        let long = "é".repeat(MAX_CHARS + 5);
        assert_eq!((format_end(" \n"), format_beginning("")), (String::new(), String::new()));
        assert_eq!(
            (format_end(" a\n"), format_beginning("a ")),
            (": a".to_owned(), ": a".to_owned())
        );
        let cut = "é".repeat(MAX_CHARS);
        assert_eq!(
            (format_end(&long), format_beginning(&long)),
            (format!(": …{cut}"), format!(": {cut}…"))
        );
        assert_eq!(format_end(&cut), format!(": {cut}"));
    }
}
