//! Patterns of events, written as text.

mod checked;
mod condition;
mod contradiction;
mod error;
mod glob;
mod numeral;
mod path;
mod reader;
mod wanted;

pub use error::PatternError;
pub(crate) use reader::PatternReader;
pub use reader::{MAX_CONDITIONS, MAX_PATTERN_CHARS};

use std::fmt;
use std::str::FromStr;

use layer0::id::RunId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::pattern::checked::check_pattern;
use crate::pattern::condition::PatternCondition;
use crate::pattern::reader::ParsedPattern;
use crate::pattern::wanted::EventTypePattern;
use crate::{EventFilter, Record};

/// A pattern of events: an event type, and conditions on its fields.
///
/// ```text
/// run.failed
/// tool.*
/// run.failed[reason=provider.*]
/// tool.responded[tool=pay, error.reason=tool.timeout]
/// model.responded[usage.output_tokens>4000]
/// ```
///
/// # Types
///
/// `*` matches one of the two segments of a type: `tool.*`, `*.failed`, `*.*`. `warning`, the only type with one
/// segment, is matched only by its name. The only event about subscriptions that a pattern can match is
/// `behavior.failed`.
///
/// # Conditions
///
/// Conditions are in brackets; a comma between two of them means "and". Each has a field, an operator and a value.
/// White space around these parts is allowed.
///
/// A field is in `data`, such as `reason`, or nested in it, such as `error.reason`. The names `run`, `seq`, `at`,
/// `type`, `actor`, `caused_by` and `schema` are fields of the envelope; with the prefix `data.`, every name is in
/// `data`: `data.run`, or `data.data.ticket` for the data of a signal. A name with other characters than letters,
/// digits, `_` and `-` needs double quotes.
///
/// | operator | holds when |
/// | --- | --- |
/// | `=` | the field has the value; `*` in it stands for any text, also an empty one |
/// | `!=` | `=` does not hold |
/// | `<` `<=` `>` `>=` | the field is a number, or a time, that compares so |
///
/// If a field is null or missing, `=` does not hold and `!=` does. In an array, one element must have the value:
/// `approvals=apr_1` holds if it is in the array, `approvals!=apr_1` if it is not. `error=*` holds if there is any
/// error, `error!=*` if there is none. If the payload was erased, no condition on `data` holds.
///
/// Text is compared character by character. With a number as its value, `=` compares numbers: `5`, `5.0` and `5e0` are
/// the same; with another value, it compares the number's text in the record, so that `status=5*` matches 503. Whole
/// numbers from -2<sup>63</sup> to 2<sup>64</sup> - 1 are compared exactly, all others as 64-bit floats. A boolean is
/// `true` or `false`. A time is in RFC 3339: `at>=2026-01-01T00:00:00Z`.
///
/// A value with spaces, commas or other punctuation needs double quotes: `message="not found, *"`. Inside quotes, `\"`,
/// `\\`, `\n`, `\r`, `\t` and `\u{1f600}` are escapes, and `\*` is a literal asterisk.
///
/// ```
/// use backstop_event_log::Pattern;
///
/// let pattern: Pattern = "tool.responded[ error.reason = tool.* ]".parse()?;
/// assert_eq!(pattern.to_string(), "tool.responded[error.reason=tool.*]");
///
/// let error = "tool.responded[eror.reason=x]".parse::<Pattern>().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "invalid pattern at column 16: `tool.responded` has no field `eror`"
/// );
/// assert_eq!(error.hint(), Some("did you mean `error`?"));
/// # Ok::<(), backstop_event_log::PatternError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pattern {
    /// The part before the brackets.
    wanted: EventTypePattern,
    conditions: Vec<PatternCondition>,
    /// The types that all conditions can match; at least one.
    types: Vec<&'static str>,
}

impl Pattern {
    /// Returns whether an event of a run matches.
    ///
    /// ```
    /// use backstop_event_log::{Pattern, Payload, Record};
    /// use layer0::Timestamp;
    /// use layer0::event::Actor;
    ///
    /// let payload = Payload::Plain(r#"{"step":"draft","to":"review"}"#.to_owned());
    /// let at = Timestamp::from_millis(0);
    /// let record = Record::new(3, at, "workflow.routed", Actor::Runtime, payload);
    ///
    /// let pattern: Pattern = "workflow.*[to=review]".parse()?;
    /// assert!(pattern.matches(&"run_1".into(), &record));
    /// # Ok::<(), backstop_event_log::PatternError>(())
    /// ```
    #[must_use]
    pub fn matches(&self, run: &RunId, record: &Record) -> bool {
        self.is_matched_around(run, record)
            && (!self.asks_for_data()
                || parse_data(record).is_some_and(|data| self.is_matched_in(&data)))
    }

    /// Returns the types of the events that can match, in the order of the catalogue.
    ///
    /// ```
    /// use backstop_event_log::Pattern;
    ///
    /// // Two types have fields of these names.
    /// let pattern: Pattern = "tool.*[tool=pay, execution>1]".parse()?;
    /// assert_eq!(pattern.event_types(), ["tool.requested"]);
    /// # Ok::<(), backstop_event_log::PatternError>(())
    /// ```
    #[must_use]
    pub fn event_types(&self) -> &[&'static str] {
        &self.types
    }

    /// Returns a filter for feeds that lets every matching event through, and is as narrow as filters can be.
    ///
    /// ```
    /// use backstop_event_log::Pattern;
    ///
    /// let pattern: Pattern = "approval.*[by=ops]".parse()?;
    /// assert_eq!(pattern.event_filter().types, ["approval.granted", "approval.denied"]);
    /// # Ok::<(), backstop_event_log::PatternError>(())
    /// ```
    #[must_use]
    pub fn event_filter(&self) -> EventFilter {
        self.types.iter().fold(EventFilter::new(), |filter, one| filter.event_type(*one))
    }

    /// Creates a pattern from its parsed text, if some event can match it.
    pub(crate) fn from_parsed(mut written: ParsedPattern) -> Result<Self, PatternError> {
        let types = check_pattern(&mut written)?;
        let conditions = written.conditions.into_iter().map(|placed| placed.condition).collect();
        Ok(Self { wanted: written.wanted, conditions, types })
    }

    /// Returns whether the envelope of an event matches.
    pub(crate) fn is_matched_around(&self, run: &RunId, record: &Record) -> bool {
        self.types.iter().any(|wanted| *wanted == record.event_type)
            && self.conditions.iter().all(|condition| condition.holds_around(run, record))
    }

    /// Returns whether a match depends on the payload.
    pub(crate) fn asks_for_data(&self) -> bool {
        self.conditions.iter().any(PatternCondition::is_of_data)
    }

    /// Returns whether the payload of an event matches.
    pub(crate) fn is_matched_in(&self, data: &Value) -> bool {
        self.conditions.iter().all(|condition| condition.holds_in(data))
    }
}

/// Parses a payload; `None` if it was erased or is not JSON.
pub(crate) fn parse_data(record: &Record) -> Option<Value> {
    serde_json::from_str(record.payload.text()?).ok()
}

/// Writes the pattern as text that parses to an equal pattern.
impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.wanted)?;
        for (place, condition) in self.conditions.iter().enumerate() {
            f.write_str(if place == 0 { "[" } else { ", " })?;
            write!(f, "{condition}")?;
        }
        if self.conditions.is_empty() { Ok(()) } else { f.write_str("]") }
    }
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let mut reader = PatternReader::new(text);
        let written = reader.pattern()?;
        reader.end()?;
        Self::from_parsed(written)
    }
}

impl TryFrom<String> for Pattern {
    type Error = PatternError;

    fn try_from(text: String) -> Result<Self, PatternError> {
        text.parse()
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> Self {
        pattern.to_string()
    }
}
