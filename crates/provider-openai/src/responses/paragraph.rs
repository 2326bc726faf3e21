//! Texts of several messages, in paragraphs.

/// Separator of two messages, and of two parts of a reasoning summary.
pub(super) const BREAK: &str = "\n\n";

/// Appends a paragraph.
pub(super) fn add(text: &mut String, paragraph: &str) {
    if !text.is_empty() && !paragraph.is_empty() {
        text.push_str(BREAK);
    }
    text.push_str(paragraph);
}
