//! Names that were mistyped.

/// Names further away than this are no help.
const MIN_SIMILARITY: f64 = 0.8;

/// Returns the known name that may be meant.
pub(crate) fn nearest<'n>(name: &str, known: &[&'n str]) -> Option<&'n str> {
    let name = name.to_ascii_lowercase();
    let likeness = |known: &str| strsim::jaro_winkler(&name, known);
    let best = known.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(best) >= MIN_SIMILARITY).then_some(best)
}
