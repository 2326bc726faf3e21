//! The words of values, as they are indexed.

use std::collections::BTreeSet;

use backstop_state::words;

use crate::text::encode_text;

/// The characters of a word that are indexed: an index has no room for longer ones.
const MAX_WORD_CHARS: usize = 256;

/// Returns the words of a text as they are indexed: each once, and of a long one its beginning.
pub(crate) fn index_words(text: &str) -> Vec<String> {
    let beginning = |word: String| word.chars().take(MAX_WORD_CHARS).collect::<String>();
    let words: BTreeSet<String> = words(text).map(beginning).collect();
    words.iter().map(|word| encode_text(word).into_owned()).collect()
}
