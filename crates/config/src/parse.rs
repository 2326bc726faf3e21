//! From text to structs, with errors people can act on.

use std::ops::Range;
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::ConfigError;

/// Names further away than this are no help.
const MIN_SIMILARITY: f64 = 0.7;

/// Reads a file as text.
///
/// # Errors
///
/// [`ConfigError`], naming the file.
pub fn read_text(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path)
        .map_err(|error| ConfigError::new(path, "cannot be read").with_source(error))
}

pub(crate) fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, ConfigError> {
    toml::from_str(text).map_err(|error| {
        let message = error.message().trim();
        let (what, hint) = match unknown(message) {
            Some((name, known)) => (format!("unknown {name}"), nearest(name, &known)),
            None => (message.to_owned(), None),
        };
        let mut config = ConfigError::new(path, what);
        if let Some(span) = error.span() {
            config = config.at(line_of(text, &span));
        }
        match hint {
            Some(hint) => config.with_hint(hint),
            None => config,
        }
    })
}

/// Returns the line of a place in a text, counted from 1.
pub(crate) fn line_of(text: &str, span: &Range<usize>) -> usize {
    let before = text.get(..span.start).unwrap_or(text);
    before.bytes().filter(|byte| *byte == b'\n').count() + 1
}

/// Takes serde's "unknown field `x`, expected one of `a`, `b`" apart.
fn unknown(message: &str) -> Option<(&str, Vec<&str>)> {
    let rest = message.strip_prefix("unknown ")?;
    let (what, known) = rest.split_once(", ")?;
    let known = known.split('`').skip(1).step_by(2).collect();
    Some((what, known))
}

/// Offers the known name that is most like the unknown one, else all of them.
fn nearest(what: &str, known: &[&str]) -> Option<String> {
    let name = what.split('`').nth(1)?;
    let likeness = |known: &&&str| strsim::jaro_winkler(name, known);
    let best = known.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    if likeness(&best) >= MIN_SIMILARITY {
        Some(format!("did you mean `{best}`?"))
    } else {
        Some(format!("known here: {}", known.join(", ")))
    }
}
