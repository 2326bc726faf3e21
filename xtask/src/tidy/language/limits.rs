//! Limits of language, as rates: those of tower, axum, jiff, quinn and rustls, with room for a crate of 1,000 lines.

use super::counts::LanguageCounts;
use super::crate_language::{CrateLanguage, FoundPlace};
use crate::tidy::finding::Finding;

/// Largest number of type names with several definitions.
const MAX_SHARED_TYPES: usize = 60;

/// The limit of one count.
struct Limit {
    what: &'static str,
    count: fn(&LanguageCounts) -> usize,
    /// The size that the count relates to.
    basis: fn(&CrateLanguage) -> usize,
    /// Largest count for a basis of 1,000.
    max_per_1000: usize,
}

const LIMITS: [Limit; 5] = [
    Limit {
        what: "a comment that begins with What, How, Who …",
        count: |counts| counts.heads,
        basis: |language| language.paragraphs,
        max_per_1000: 20,
    },
    Limit {
        what: "a comment that asks",
        count: |counts| counts.questions,
        basis: |language| language.paragraphs,
        max_per_1000: 6,
    },
    Limit {
        what: "words that a newcomer would not search for",
        count: |counts| counts.private_words,
        basis: |language| language.comment_lines,
        max_per_1000: 15,
    },
    Limit {
        what: "a function named by a lone participle",
        count: |counts| counts.participles,
        basis: |language| language.functions,
        max_per_1000: 20,
    },
    Limit {
        what: "a function named `of` or `…_of`",
        count: |counts| counts.of_names,
        basis: |language| language.functions,
        max_per_1000: 2,
    },
];

impl Limit {
    /// Returns the largest count of a crate: at least one, because a rate of a small crate is none.
    fn max_count(&self, language: &CrateLanguage) -> usize {
        ((self.basis)(language) * self.max_per_1000 / 1_000).max(1)
    }
}

/// Finds the places of each count of a crate that is above its limit.
pub(super) fn check(name: &str, language: &CrateLanguage) -> Vec<Finding> {
    let mut found = Vec::new();
    for limit in &LIMITS {
        let (count, max) = ((limit.count)(&language.counts), limit.max_count(language));
        if count <= max {
            continue;
        }
        let is_counted = |place: &&FoundPlace| (limit.count)(&place.place.counts) > 0;
        found.extend(language.places.iter().filter(is_counted).map(
            |FoundPlace { path, place }| {
                let what = format!(
                    "`{}`: {}; crate `{name}` has {count} of them, at most {max}",
                    place.text, limit.what
                );
                Finding::error(path, place.line, what)
            },
        ));
    }
    found
}

/// Finds that too many type names have several definitions.
pub(super) fn check_shared_types(count: usize) -> Vec<Finding> {
    let what = format!("{count} type names are defined more than once, at most {MAX_SHARED_TYPES}");
    if count > MAX_SHARED_TYPES { vec![Finding::error("crates", 1, what)] } else { Vec::new() }
}

/// Returns the counts of a crate for a basis of 1,000 each.
pub(super) fn describe_rates(language: &CrateLanguage) -> String {
    let rates = LIMITS.iter().map(|limit| {
        let tenths = 10_000 * (limit.count)(&language.counts) / (limit.basis)(language).max(1);
        format!("{}.{} {}", tenths / 10, tenths % 10, limit.what)
    });
    rates.collect::<Vec<_>>().join(", ")
}
