use std::fmt;
use std::str::FromStr;

use layer0::event::Hash;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A place in the events of a log, behind which a [`Feed`](crate::Feed) goes on.
///
/// It is opaque, and has a text form to keep it in: `start`, `now`, or what the log made of a place.
/// With the place goes a mark of the event that stands there, by which a log knows a cursor that is
/// not its own.
///
/// ```
/// use backstop_event_log::Cursor;
///
/// let kept = "now".parse::<Cursor>()?;
/// assert_eq!(kept, Cursor::now());
/// assert!("yesterday".parse::<Cursor>().is_err());
/// # Ok::<(), backstop_event_log::InvalidCursor>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cursor(Place);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    Start,
    Now,
    /// Behind the event of this number, with the beginning of its hash where that is known.
    Behind(u64, Option<u32>),
}

/// Says that a text is no cursor.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("invalid cursor `{0}`: expected `start`, `now`, or one that a feed gave")]
pub struct InvalidCursor(String);

impl Cursor {
    /// Stands before the first event.
    #[must_use]
    pub const fn start() -> Self {
        Self(Place::Start)
    }

    /// Stands behind the event that is the last one when it is used.
    #[must_use]
    pub const fn now() -> Self {
        Self(Place::Now)
    }

    /// Stands behind an event, for logs: `number` is its place in all events of the log, which grows
    /// in the order in which they were appended and is never given out again; none has 0.
    #[must_use]
    pub fn behind(number: u64, hash: Option<&Hash>) -> Self {
        match number {
            0 => Self::start(),
            _ => Self(Place::Behind(number, hash.map(mark_of))),
        }
    }

    /// Returns the number of the event behind which it stands, for logs: 0 at the start, `None` for
    /// now.
    #[must_use]
    pub const fn number(&self) -> Option<u64> {
        match self.0 {
            Place::Start => Some(0),
            Place::Now => None,
            Place::Behind(number, _) => Some(number),
        }
    }

    /// Can it stand behind an event with this hash, for logs? Where it has no mark, it can.
    #[must_use]
    pub fn fits(&self, hash: &Hash) -> bool {
        match self.0 {
            Place::Behind(_, Some(mark)) => mark == mark_of(hash),
            _ => true,
        }
    }
}

const fn mark_of(hash: &Hash) -> u32 {
    let [a, b, c, d, ..] = hash.0;
    u32::from_be_bytes([a, b, c, d])
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Place::Start => f.write_str("start"),
            Place::Now => f.write_str("now"),
            Place::Behind(number, None) => write!(f, "{number}"),
            Place::Behind(number, Some(mark)) => write!(f, "{number}-{mark:08x}"),
        }
    }
}

impl FromStr for Cursor {
    type Err = InvalidCursor;

    fn from_str(text: &str) -> Result<Self, InvalidCursor> {
        let read = || {
            let (number, mark) = match text.split_once('-') {
                Some((number, mark)) => (number, Some(u32::from_str_radix(mark, 16).ok()?)),
                None => (text, None),
            };
            Some(Self(Place::Behind(number.parse().ok().filter(|number| *number > 0)?, mark)))
        };
        let cursor = match text {
            "start" => Some(Self::start()),
            "now" => Some(Self::now()),
            _ => read(),
        };
        // What is read prints as it was, so that there is one text for each place.
        let is_same = |cursor: &Self| cursor.to_string() == text;
        cursor.filter(is_same).ok_or_else(|| InvalidCursor(text.to_owned()))
    }
}

impl From<Cursor> for String {
    fn from(cursor: Cursor) -> Self {
        cursor.to_string()
    }
}

impl TryFrom<String> for Cursor {
    type Error = InvalidCursor;

    fn try_from(text: String) -> Result<Self, InvalidCursor> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_reads_back_as_it_was_written() {
        let hash = Hash([0x0f; 32]);
        for (cursor, text) in [
            (Cursor::start(), "start"),
            (Cursor::behind(0, Some(&hash)), "start"),
            (Cursor::now(), "now"),
            (Cursor::behind(7, None), "7"),
            (Cursor::behind(u64::MAX, Some(&hash)), "18446744073709551615-0f0f0f0f"),
        ] {
            assert_eq!(cursor.to_string(), text);
            assert_eq!(text.parse(), Ok(cursor));
            let json = serde_json::to_string(&cursor).unwrap();
            assert_eq!(serde_json::from_str::<Cursor>(&json).unwrap(), cursor);
        }
    }

    #[test]
    fn what_is_no_cursor_is_refused() {
        for text in
            ["", "0", "-", "7-", "-0f0f0f0f", "+7", "07", "7-f", "7-0F0F0F0F", "7-0f0f0f0f0", "Now"]
        {
            assert_eq!(text.parse::<Cursor>(), Err(InvalidCursor(text.to_owned())), "{text}");
        }
        assert!(serde_json::from_str::<Cursor>("7").is_err());
    }
}
