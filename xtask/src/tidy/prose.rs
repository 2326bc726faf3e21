//! Plain language in the pages: the rate of words that a newcomer would not search for, and words of other projects.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::Finding;
use super::language::private_words;

/// Largest number of private words in 1,000 words of all pages.
const MAX_PRIVATE_PER_1000: f64 = 1.5;
/// Pages that the code writes, with the words of its comments, and the list of changes.
const NOT_COUNTED: [&str; 6] = [
    "CHANGELOG.md",
    "docs/endpoint-failures.md",
    "docs/errors.md",
    "docs/events.md",
    "docs/mcp-faults.md",
    "docs/wire.md",
];
const GLOSSARY: &str = "docs/glossary.md";
/// The page that describes other projects in their own words.
const COMPARISON: &str = "docs/compare.md";
/// Phrases of the glossary that also have an ordinary meaning.
const ORDINARY: [&str; 5] =
    ["error type", "function call", "idempotency key", "log line", "side effect"];

/// Checks the prose of all pages: outside of code and of pages that are written by a program.
pub(crate) fn check(pages: &BTreeMap<String, String>) -> Vec<Finding> {
    let is_counted = |page: &str| {
        let is_ours = page.starts_with("docs/") || !page.contains('/');
        is_ours && !NOT_COUNTED.contains(&page)
    };
    let foreign = pages.get(GLOSSARY).map(|text| foreign_phrases(text)).unwrap_or_default();
    let (mut words, mut private, mut found) = (0, Vec::new(), Vec::new());
    for (page, text) in pages.iter().filter(|(page, _)| is_counted(page)) {
        for (line, text) in prose(text) {
            words += text.split_whitespace().count();
            let count = private_words(&text);
            private.extend((0..count).map(|_| (page, line, text.trim().to_owned())));
        }
        if ![GLOSSARY, COMPARISON].contains(&&**page) {
            found.extend(check_phrases(page, text, &foreign));
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "pages have less than 2^52 words")]
    let rate = 1_000.0 * private.len() as f64 / f64::max(words as f64, 1.0);
    if rate > MAX_PRIVATE_PER_1000 {
        let what = format!(
            "words that a newcomer would not search for; all pages have {rate:.1} in 1,000 words, at most \
             {MAX_PRIVATE_PER_1000}"
        );
        let place = |(page, line, text): (&String, usize, String)| {
            Finding::error(page, line, format!("`{text}`: {what}"))
        };
        found.extend(private.into_iter().map(place));
    }
    found
}

/// Finds words of other projects that are not named as such: in parentheses, or in a sentence with "call".
fn check_phrases(page: &str, text: &str, foreign: &BTreeSet<String>) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut before = String::new();
    for (line, text) in prose(text) {
        let text = text.to_lowercase();
        // A sentence may begin on the line before.
        let context = format!("{before} {text}");
        for phrase in foreign.iter().filter(|phrase| text.contains(*phrase)) {
            let is_named = context.contains(" call ") || context.contains(" called ");
            let (start, _) = context.rsplit_once(&**phrase).unwrap_or_default();
            let is_in_parentheses = start.matches('(').count() > start.matches(')').count();
            if !is_named && !is_in_parentheses {
                let what = format!(
                    "`{phrase}` is a word of other projects: {GLOSSARY} has the word for it here"
                );
                found.push(Finding::error(page, line, what));
            }
        }
        before = text;
    }
    found
}

/// Returns the phrases of several words in the third column of the glossary's first table.
fn foreign_phrases(glossary: &str) -> BTreeSet<String> {
    let rows = glossary.lines().skip_while(|line| !line.starts_with('|'));
    let rows = rows.take_while(|line| line.starts_with('|')).skip(2);
    let cells = rows.filter_map(|row| row.split('|').nth(3));
    let phrases = cells.flat_map(|cell| cell.split(',')).map(|phrase| phrase.trim().to_lowercase());
    phrases.filter(|phrase| phrase.contains([' ', '-']) && !ORDINARY.contains(&&**phrase)).collect()
}

/// Returns the lines outside of code fences, without code between backticks.
fn prose(text: &str) -> impl Iterator<Item = (usize, String)> {
    let mut is_code = false;
    (1..).zip(text.lines()).filter_map(move |(line, text)| {
        if text.trim_start().starts_with("```") {
            is_code = !is_code;
            return None;
        }
        (!is_code).then(|| (line, text.split('`').step_by(2).collect::<Vec<_>>().join(" ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(pages: &[(&str, &str)]) -> Vec<String> {
        let pages = pages.iter().map(|(page, text)| ((*page).to_owned(), (*text).to_owned()));
        check(&pages.collect()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn private_words_have_a_limit() {
        let plain = "word ".repeat(1_000);
        let page = |text: &str| format!("{plain}\n{text}\n```\ntold told\n```\n`told`\n");
        assert!(findings(&[("README.md", &page("It is told."))]).is_empty());
        let found = findings(&[("README.md", &page("It is told.\nIt stands."))]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("README.md:2: `It is told.`"), "{found:?}");
        assert!(findings(&[("docs/errors.md", "told"), ("crates/a/README.md", "told")]).is_empty());
    }

    #[test]
    fn words_of_others_are_named_as_such() {
        let glossary = "# Glossary\n\n| word | meaning | not called here |\n|---|---|---|\n\
            | child run | A run below. | sub-agent, function call, thread |\n\n| a | b | c |\n";
        let page = "A sub-agent runs.\nChild runs (sub-agents) run.\nOthers call it a\nsub-agent.\n\
            A function call.\n";
        let found = findings(&[("docs/glossary.md", glossary), ("docs/a.md", page)]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("docs/a.md:1: `sub-agent` is a word of other"), "{found:?}");
    }
}
