//! Counts of the files of a crate.

use super::counts::{LanguageCounts, Place};
use super::{comments, functions};
use crate::tidy::syntax::test_parts;
use crate::tidy::workspace::SourceFile;

/// The counts of a crate, the sizes that they relate to, and their places.
#[derive(Debug, Clone, Default)]
pub(super) struct CrateLanguage {
    pub(super) counts: LanguageCounts,
    pub(super) comment_lines: usize,
    pub(super) paragraphs: usize,
    pub(super) functions: usize,
    pub(super) places: Vec<FoundPlace>,
}

/// A place in a file of the workspace.
#[derive(Debug, Clone)]
pub(super) struct FoundPlace {
    pub(super) path: String,
    pub(super) place: Place,
}

impl CrateLanguage {
    pub(super) fn add(&mut self, file: &SourceFile) {
        let tests = test_parts(&file.syntax);
        let comments = comments::read(&file.text, &tests);
        let functions = functions::read(&file.syntax, &tests);
        self.comment_lines += comments.lines;
        self.paragraphs += comments.paragraphs;
        self.functions += functions.total;
        for mut place in comments.places.into_iter().chain(functions.places) {
            self.counts.add(place.counts);
            place.text = place.text.chars().take(120).collect();
            self.places.push(FoundPlace { path: file.path.clone(), place });
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.counts.add(other.counts);
        self.comment_lines += other.comment_lines;
        self.paragraphs += other.paragraphs;
        self.functions += other.functions;
        self.places.extend_from_slice(&other.places);
    }
}
