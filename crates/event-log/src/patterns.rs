//! Several patterns; an event must match one.

use std::cell::OnceCell;
use std::fmt;
use std::str::FromStr;

use layer0::event::EVENT_TYPES;
use layer0::id::RunId;
use serde::{Deserialize, Serialize};

use crate::pattern::{Pattern, PatternError, PatternReader, parse_data};
use crate::{EventFilter, Record};

/// Maximum number of patterns in [`Patterns`].
pub const MAX_PATTERNS: usize = 16;

/// One [`Pattern`] or several, one of them must match. As text, they are joined by `or`.
///
/// ```
/// use backstop_event_log::Patterns;
///
/// let patterns = Patterns::of_texts(["run.failed[reason=provider.*]", "approval.requested"])?;
/// assert_eq!(patterns.to_string(), "run.failed[reason=provider.*] or approval.requested");
/// assert_eq!(patterns, patterns.to_string().parse()?);
/// assert_eq!(patterns.event_filter().types, ["run.failed", "approval.requested"]);
/// # Ok::<(), backstop_event_log::PatternError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Patterns(Vec<Pattern>);

impl Patterns {
    /// Parses each text as one pattern; the column of an error is that in its own text.
    ///
    /// ```
    /// use backstop_event_log::Patterns;
    ///
    /// let error = Patterns::of_texts(["run.failed", "run."]).unwrap_err();
    /// assert_eq!(error.column(), 5);
    /// assert!(Patterns::of_texts::<&str>([]).is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// [`PatternError`], also if there is no text or more than [`MAX_PATTERNS`].
    pub fn of_texts<T: AsRef<str>>(
        texts: impl IntoIterator<Item = T>,
    ) -> Result<Self, PatternError> {
        let patterns = texts.into_iter().map(|text| text.as_ref().parse());
        Self::new(patterns.collect::<Result<_, _>>()?)
    }

    /// Returns the patterns in the given order.
    pub fn iter(&self) -> impl Iterator<Item = &Pattern> {
        self.0.iter()
    }

    /// Returns whether an event of a run matches. The payload is parsed at most once, and only if the match depends on
    /// it.
    ///
    /// ```
    /// use backstop_event_log::{Patterns, Payload, Record};
    /// use layer0::Timestamp;
    /// use layer0::event::Actor;
    ///
    /// let payload = Payload::Plain(r#"{"message":"disk is nearly full"}"#.to_owned());
    /// let record = Record::new(2, Timestamp::default(), "warning", Actor::Runtime, payload);
    /// let patterns: Patterns = "run.failed or warning[message=\"disk *\"]".parse()?;
    /// assert!(patterns.matches(&"run_1".into(), &record));
    /// # Ok::<(), backstop_event_log::PatternError>(())
    /// ```
    #[must_use]
    pub fn matches(&self, run: &RunId, record: &Record) -> bool {
        let data = OnceCell::new();
        let mut around = self.iter().filter(|pattern| pattern.is_matched_around(run, record));
        around.any(|pattern| {
            !pattern.asks_for_data()
                || data
                    .get_or_init(|| parse_data(record))
                    .as_ref()
                    .is_some_and(|data| pattern.is_matched_in(data))
        })
    }

    /// Returns the types of the events that can match, in the order of the catalogue.
    #[must_use]
    pub fn event_types(&self) -> Vec<&'static str> {
        let is_wanted = |one: &&str| self.iter().any(|pattern| pattern.event_types().contains(one));
        EVENT_TYPES.iter().copied().filter(is_wanted).collect()
    }

    /// Returns a filter for feeds that lets every matching event through, and is as narrow as filters can be.
    #[must_use]
    pub fn event_filter(&self) -> EventFilter {
        self.event_types().into_iter().fold(EventFilter::new(), EventFilter::event_type)
    }

    fn new(patterns: Vec<Pattern>) -> Result<Self, PatternError> {
        let expected = match patterns.len() {
            0 => "a pattern".to_owned(),
            1..=MAX_PATTERNS => return Ok(Self(patterns)),
            _ => format!("at most {MAX_PATTERNS} patterns"),
        };
        let found = match patterns.len() {
            0 => "none".to_owned(),
            many => many.to_string(),
        };
        Err(PatternError::Syntax { column: 1, expected, found, hint: None })
    }
}

impl From<Pattern> for Patterns {
    fn from(pattern: Pattern) -> Self {
        Self(vec![pattern])
    }
}

/// Writes the patterns as text that parses to equal patterns.
impl fmt::Display for Patterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, pattern) in self.iter().enumerate() {
            write!(f, "{}{pattern}", if place > 0 { " or " } else { "" })?;
        }
        Ok(())
    }
}

impl FromStr for Patterns {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let mut reader = PatternReader::new(text);
        let mut patterns = vec![Pattern::from_parsed(reader.pattern()?)?];
        while reader.or()? {
            patterns.push(Pattern::from_parsed(reader.pattern()?)?);
        }
        Self::new(patterns)
    }
}

impl TryFrom<String> for Patterns {
    type Error = PatternError;

    fn try_from(text: String) -> Result<Self, PatternError> {
        text.parse()
    }
}

impl From<Patterns> for String {
    fn from(patterns: Patterns) -> Self {
        patterns.to_string()
    }
}
