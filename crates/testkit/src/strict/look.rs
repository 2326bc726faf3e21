//! Searches that rules share.

use super::json::Node;
use super::rule::Found;

/// Returns whether a text has 1 to `max` ASCII letters, digits and characters of `more`.
pub(super) fn is_word(text: &str, max: usize, more: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || more.contains(c);
    (1..=max).contains(&text.len()) && text.chars().all(fits)
}

/// Returns whether a text has no character but white space.
pub(super) fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// Returns the first field that is not among the known ones.
pub(super) fn unknown_field<'a>(node: Node<'a>, known: &[&str]) -> Option<&'a str> {
    node.fields().map(|(name, _)| name).find(|name| !known.contains(name))
}

/// Returns the first text that occurs twice.
pub(super) fn repeated<'a>(texts: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut seen = Vec::new();
    for text in texts {
        if seen.contains(&text) {
            return Some(text);
        }
        seen.push(text);
    }
    None
}

/// Returns the parts for the first item for which `find` returns some; it gets the index and the item.
pub(super) fn find_first<'a>(
    items: impl Iterator<Item = Node<'a>>,
    mut find: impl FnMut(usize, Node<'a>) -> Found,
) -> Found {
    items.enumerate().find_map(|(index, item)| find(index, item))
}
