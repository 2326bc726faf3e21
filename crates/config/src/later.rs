//! Keys of the format that this version does not support yet.

use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;

use crate::ConfigError;

/// A known key that is refused.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
pub(crate) struct Later(Spanned<IgnoredAny>);

/// The refused keys of a file, by name.
pub(crate) type Refused<'a> = Vec<(&'static str, Option<&'a Later>)>;

/// Fails at the first refused key in the file.
pub(crate) fn refuse(path: &Path, text: &str, keys: Refused<'_>) -> Result<(), ConfigError> {
    let hint = "take it out; this version would ignore it";
    refuse_as(path, text, keys, " is not supported yet", hint)
}

/// Fails as [`refuse`] does; `why` follows the name of the key.
pub(crate) fn refuse_as(
    path: &Path,
    text: &str,
    keys: Refused<'_>,
    why: &str,
    hint: &str,
) -> Result<(), ConfigError> {
    let there = keys.into_iter().filter_map(|(key, later)| Some((key, later?.0.span())));
    let first = there.min_by_key(|(_, span): &(_, Range<usize>)| span.start);
    match first {
        Some((key, span)) => {
            Err(ConfigError::new(path, format!("`{key}`{why}")).in_text(text, span).with_hint(hint))
        }
        None => Ok(()),
    }
}
