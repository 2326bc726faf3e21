//! Suggestions for mistyped names.

/// Smallest similarity of a suggestion.
const MIN_SIMILARITY: f64 = 0.8;

/// Returns the nearest known name, if one is similar enough.
pub(crate) fn nearest<'n>(name: &str, known: &[&'n str]) -> Option<&'n str> {
    let name = name.to_ascii_lowercase();
    let likeness = |known: &str| strsim::jaro_winkler(&name, known);
    let best = known.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(best) >= MIN_SIMILARITY).then_some(best)
}
