//! Comments of a file.

use std::ops::RangeInclusive;

use super::counts::{LanguageCounts, Place};

const HEADS: [&str; 9] = ["What", "Who", "Whose", "Whom", "Where", "When", "How", "Which", "Why"];

/// Words that only the authors understand.
const PRIVATE: &[&[&str]] = &[
    &["said"],
    &["says"],
    &["told"],
    &["tells"],
    &["heard"],
    &["hears"],
    &["stand"],
    &["stands"],
    &["beside"],
    &["goes", "on"],
    &["gone", "on"],
    &["go", "on"],
    &["going", "on"],
    &["taken", "up"],
    &["takes", "up"],
    &["take", "up"],
    &["comes", "to"],
    &["came", "to"],
    &["comes", "of"],
    &["came", "of"],
    &["at", "work"],
    &["of", "now"],
    &["of", "which"],
    &["of", "whom"],
    &["of", "it"],
    &["of", "that"],
    &["none", "where"],
    &["what", "it"],
];

/// The comments of a file, without those of tests.
pub(super) struct Comments {
    pub(super) lines: usize,
    pub(super) paragraphs: usize,
    pub(super) places: Vec<Place>,
}

/// Reads comments: a paragraph is a run of comment lines up to the first blank line, heading, table or code.
pub(super) fn read(text: &str, tests: &[RangeInclusive<usize>]) -> Comments {
    let mut comments = Comments { lines: 0, paragraphs: 0, places: Vec::new() };
    let mut paragraph = String::new();
    let (mut start, mut is_over) = (0, false);
    for (line, text) in (1..).zip(text.lines().chain([""])) {
        let is_test = tests.iter().any(|part| part.contains(&line));
        let Some(words) = comment(text).filter(|_| !is_test) else {
            comments.take(start, &std::mem::take(&mut paragraph));
            is_over = false;
            continue;
        };
        comments.lines += 1;
        let is_end = words.is_empty() || ["#", "```", "|"].iter().any(|it| words.starts_with(it));
        is_over |= is_end;
        if is_over {
            continue;
        }
        if paragraph.is_empty() {
            start = line;
        } else {
            paragraph.push(' ');
        }
        paragraph.push_str(words);
    }
    comments
}

impl Comments {
    fn take(&mut self, line: usize, text: &str) {
        if text.is_empty() {
            return;
        }
        self.paragraphs += 1;
        let first = text.split(". ").next().unwrap_or(text).trim_end_matches('.');
        let head = text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        let counts = LanguageCounts {
            heads: usize::from(HEADS.contains(&head)),
            questions: usize::from(first.ends_with('?')),
            private_words: count_private(text),
            ..LanguageCounts::default()
        };
        if counts != LanguageCounts::default() {
            self.places.push(Place { line, counts, text: text.to_owned() });
        }
    }
}

/// Returns the text of a line that is only a comment.
fn comment(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("//")?;
    Some(rest.strip_prefix(['/', '!']).unwrap_or(rest).trim())
}

pub(crate) fn count_private(text: &str) -> usize {
    let text = text.to_lowercase();
    let words: Vec<&str> =
        text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let begins = |at: usize, phrase: &[&str]| words[at..].starts_with(phrase);
    let hits = (0..words.len()).filter(|at| PRIVATE.iter().any(|phrase| begins(*at, phrase)));
    hits.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_end_at_blank_lines_and_code() {
        let text = "//! What it is\n//! for.\n//!\n//! What is not counted.\nfn f() {}\n/// Is it?\n/// ```\n/// told\n/// ```\n    // Goes on beside it.\n";
        let comments = read(text, &[]);
        assert_eq!((comments.lines, comments.paragraphs), (9, 2));
        let head = LanguageCounts { heads: 1, private_words: 1, ..Default::default() };
        let question = LanguageCounts { questions: 1, ..Default::default() };
        let found = comments.places.iter().map(|place| (place.line, place.counts));
        assert_eq!(found.collect::<Vec<_>>(), [(1, head), (6, question)]);
        let apart = read("// Goes on beside it.\n", &[]);
        assert_eq!(apart.places[0].counts.private_words, 2);
        assert!(read(text, &[1..=99]).places.is_empty());
    }
}
