//! The event types that a pattern names.

use std::fmt;

use layer0::event::EVENT_TYPES;

use crate::pattern::error::{PatternError, shorten};

/// Events about subscriptions that are never delivered.
const NOT_DELIVERED: [&str; 3] =
    ["behavior.completed", "behavior.delivered", "subscription.opened"];

/// Minimum similarity of a name that is suggested.
const MIN_SIMILARITY: f64 = 0.8;

/// An event type in which `*` matches one segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EventTypePattern(String);

impl EventTypePattern {
    /// Creates it from the type's text without white space.
    pub(crate) const fn new(text: String) -> Self {
        Self(text)
    }

    /// Returns the types that it matches.
    pub(crate) fn types(&self, column: usize) -> Result<Vec<&'static str>, PatternError> {
        let named = EVENT_TYPES.iter().copied().filter(|one| self.names(one));
        let named: Vec<&str> = named.collect();
        let delivered = named.iter().copied().filter(|one| !NOT_DELIVERED.contains(one));
        let delivered: Vec<&str> = delivered.collect();
        let event_type = shorten(&self.0);
        match (delivered.is_empty(), named.is_empty()) {
            (false, _) => Ok(delivered),
            (true, false) => Err(PatternError::NotDelivered { column, event_type }),
            (true, true) => {
                Err(PatternError::UnknownType { column, event_type, hint: Some(self.hint()) })
            }
        }
    }

    fn names(&self, event_type: &str) -> bool {
        let (own, segments) = (self.0.split('.'), event_type.split('.'));
        own.clone().count() == segments.clone().count()
            && own.zip(segments).all(|(own, segment)| own == "*" || own == segment)
    }

    fn hint(&self) -> String {
        let wildcards = EVENT_TYPES.iter().filter_map(|known| known.split_once('.'));
        let known: Vec<String> = match self.0.split_once('.') {
            Some(("*", _)) => wildcards.map(|(_, last)| format!("*.{last}")).collect(),
            Some((_, "*")) | None => {
                let families = wildcards.map(|(first, _)| format!("{first}.*"));
                families.chain(["warning".to_owned()]).collect()
            }
            Some(_) => EVENT_TYPES.iter().map(|known| (*known).to_owned()).collect(),
        };
        match nearest(&self.0, known.iter().map(String::as_str)) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => "the types of events are in docs/events.md; one is `run.failed`".to_owned(),
        }
    }
}

impl fmt::Display for EventTypePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the known name that was probably meant.
pub(crate) fn nearest<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let small = name.to_ascii_lowercase();
    known
        .map(|known| (strsim::jaro_winkler(&small, known), known))
        .filter(|(likeness, _)| *likeness >= MIN_SIMILARITY)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, known)| known)
}
