//! Which events a behaviour reacts to, written as text.

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
pub(crate) use reader::Reader;
pub use reader::{MAX_CONDITIONS, MAX_PATTERN_CHARS};

use std::fmt;
use std::str::FromStr;

use layer0::id::RunId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::pattern::checked::checked;
use crate::pattern::condition::Condition;
use crate::pattern::reader::Written;
use crate::pattern::wanted::Wanted;
use crate::{EventFilter, Record};

/// Which events are wanted: an event type, and conditions on what an event says.
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
/// `*` stands for one of the two segments of a type: `tool.*`, `*.failed`, `*.*`. `warning`, the only type
/// of one segment, is matched by its name alone. Of what is recorded about subscriptions only
/// `behavior.failed` is ever matched.
///
/// # Conditions
///
/// They stand in brackets; a comma between two means "and". Each is a field, an operator and a value.
/// White space around each of them is allowed.
///
/// A field is one of `data`, such as `reason`, or one inside of it, such as `error.reason`. The names
/// `run`, `seq`, `at`, `type`, `actor`, `caused_by` and `schema` reach the envelope; with `data.` in front,
/// every name reaches `data`: `data.run`, and `data.data.ticket` for what a signal carried. A name with other
/// characters than letters, digits, `_` and `-` stands in double quotes.
///
/// | operator | holds when |
/// | --- | --- |
/// | `=` | the field has the value; `*` in it stands for any text, also an empty one |
/// | `!=` | `=` does not hold |
/// | `<` `<=` `>` `>=` | the field is a number, or a time, that compares so |
///
/// So where a field is null or missing, `=` does not hold and `!=` does. Of an array, one element has to
/// have the value: `approvals=apr_1` holds when it is among them, `approvals!=apr_1` when it is not.
/// `error=*` holds when there is an error of any kind, `error!=*` when there is none. Where the payload was
/// erased, no condition on `data` holds.
///
/// Text is compared as it stands, letter for letter. With a number as its value, `=` compares numbers: `5`,
/// `5.0` and `5e0` are the same; with another value, it compares the text of the number as it stands in the
/// record, so that `status=5*` holds of 503. Whole numbers from -2<sup>63</sup> to 2<sup>64</sup> - 1 are
/// compared exactly, all others as 64-bit floats. A boolean is `true` or `false`. A time is in RFC 3339:
/// `at>=2026-01-01T00:00:00Z`.
///
/// A value with spaces, commas or other punctuation stands in double quotes: `message="not found, *"`.
/// Quoted, `\"`, `\\`, `\n`, `\r`, `\t` and `\u{1f600}` stand for characters, and `\*` for an asterisk
/// that is none of the wildcards.
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
    /// What stands in front of the brackets.
    wanted: Wanted,
    conditions: Vec<Condition>,
    /// The types that fit all conditions; at least one.
    types: Vec<&'static str>,
}

impl Pattern {
    /// Is an event of a run wanted?
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
                || data_of(record).is_some_and(|data| self.is_matched_in(&data)))
    }

    /// Returns the types of the events that can be wanted, in the order of the catalogue.
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

    /// Returns the filter with which a feed brings every event that can be wanted, and no more than it
    /// can tell apart.
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

    /// Takes a pattern that was written, where there is an event that it matches.
    pub(crate) fn of(mut written: Written) -> Result<Self, PatternError> {
        let types = checked(&mut written)?;
        let conditions = written.conditions.into_iter().map(|placed| placed.condition).collect();
        Ok(Self { wanted: written.wanted, conditions, types })
    }

    /// Is an event wanted, as far as its envelope decides that?
    pub(crate) fn is_matched_around(&self, run: &RunId, record: &Record) -> bool {
        self.types.iter().any(|wanted| *wanted == record.event_type)
            && self.conditions.iter().all(|condition| condition.holds_around(run, record))
    }

    /// Does it depend on the payload whether an event is wanted?
    pub(crate) fn asks_for_data(&self) -> bool {
        self.conditions.iter().any(Condition::is_of_data)
    }

    /// Is an event wanted, as far as its payload decides that?
    pub(crate) fn is_matched_in(&self, data: &Value) -> bool {
        self.conditions.iter().all(|condition| condition.holds_in(data))
    }
}

/// Reads a payload; `None` of one that was erased or is no JSON.
pub(crate) fn data_of(record: &Record) -> Option<Value> {
    serde_json::from_str(record.payload.text()?).ok()
}

/// Writes the pattern as text that is read as the same one.
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
        let mut reader = Reader::new(text);
        let written = reader.pattern()?;
        reader.end()?;
        Self::of(written)
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
