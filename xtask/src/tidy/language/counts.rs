//! Counts of language, with their places.

/// Counts of a place or a crate. Lower counts mean plainer language.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LanguageCounts {
    /// Comment paragraphs that begin with What, Who, Where, When, How, Which or Why.
    pub(super) heads: usize,
    /// Comment paragraphs that ask a question.
    pub(super) questions: usize,
    /// Words of this project for which a newcomer would not search.
    pub(super) private_words: usize,
    /// Functions named by a single participle that return no `bool`.
    pub(super) participles: usize,
    /// Functions named `of` or `…_of`.
    pub(super) of_names: usize,
}

/// The place of a count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) line: usize,
    pub(super) counts: LanguageCounts,
    pub(super) text: String,
}

impl LanguageCounts {
    pub(super) fn add(&mut self, other: Self) {
        self.heads += other.heads;
        self.questions += other.questions;
        self.private_words += other.private_words;
        self.participles += other.participles;
        self.of_names += other.of_names;
    }

    /// Returns the weight of a place with these counts in the list of the worst.
    pub(super) const fn weight(self) -> usize {
        2 * self.heads + self.questions + self.private_words + self.participles + self.of_names
    }
}
