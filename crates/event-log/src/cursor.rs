use std::fmt;
use std::str::FromStr;

use layer0::code;
use layer0::event::Hash;
use layer0::failure::{Effect, Facts, Failure};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A position in the events of a log, after which a [`Feed`](crate::Feed) continues.
///
/// It is opaque, and has a text form for storage: `start`, `now`, or a position encoded by the log. A position contains
/// marks of its event and of the store, by which a log refuses the cursor of another log.
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
pub struct Cursor(CursorPosition);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum CursorPosition {
    Start,
    Now,
    Behind(Behind),
}

/// A position after an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Behind {
    number: u64,
    /// The first bytes of the event's hash, if known.
    hash: Option<u32>,
    /// The mark of the store, if it has one.
    store: Option<u32>,
}

/// Error of a text that is not a cursor.
///
/// Retry: never. Effect: none.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("invalid cursor `{0}`: expected `start`, `now`, or one that a feed gave")]
pub struct InvalidCursor(String);

impl Failure for InvalidCursor {
    fn facts(&self) -> Facts {
        Facts::never(code::INPUT_INVALID, Effect::None)
    }
}

impl Cursor {
    /// Returns the position before the first event.
    #[must_use]
    pub const fn start() -> Self {
        Self(CursorPosition::Start)
    }

    /// Returns the position after the last event at the time of use.
    #[must_use]
    pub const fn now() -> Self {
        Self(CursorPosition::Now)
    }

    /// Returns the position after an event; for implementations of logs.
    ///
    /// `number` is the event's number among all events of the log: it grows in the order of appends, is never reused
    /// and is not 0.
    #[must_use]
    pub fn behind(number: u64, hash: Option<&Hash>) -> Self {
        match number {
            0 => Self::start(),
            _ => {
                let hash = hash.map(hash_prefix);
                Self(CursorPosition::Behind(Behind { number, hash, store: None }))
            }
        }
    }

    /// Adds the mark of a store; for implementations of logs. A store draws its mark once, at random; a backup of the
    /// store has the same mark.
    #[must_use]
    pub const fn in_store(mut self, mark: Option<u32>) -> Self {
        if let CursorPosition::Behind(behind) = &mut self.0 {
            behind.store = mark;
        }
        self
    }

    /// Returns whether the cursor can belong to the store with this mark; for implementations of logs. A cursor without
    /// a mark, written by an earlier version, fits every store.
    #[must_use]
    pub fn fits_store(&self, mark: Option<u32>) -> bool {
        match self.0 {
            CursorPosition::Behind(Behind { store: Some(store), .. }) => {
                mark.is_none_or(|mark| store == mark)
            }
            _ => true,
        }
    }

    /// Returns the number of the event before the position; for implementations of logs. It is 0 at the start, and
    /// `None` for now.
    #[must_use]
    pub const fn number(&self) -> Option<u64> {
        match self.0 {
            CursorPosition::Start => Some(0),
            CursorPosition::Now => None,
            CursorPosition::Behind(behind) => Some(behind.number),
        }
    }

    /// Returns whether the position can be after an event with this hash; for implementations of logs. A cursor without
    /// a hash fits every event.
    #[must_use]
    pub fn fits(&self, hash: &Hash) -> bool {
        match self.0 {
            CursorPosition::Behind(Behind { hash: Some(mark), .. }) => mark == hash_prefix(hash),
            _ => true,
        }
    }
}

const fn hash_prefix(hash: &Hash) -> u32 {
    let [a, b, c, d, ..] = hash.0;
    u32::from_be_bytes([a, b, c, d])
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            CursorPosition::Start => f.write_str("start"),
            CursorPosition::Now => f.write_str("now"),
            CursorPosition::Behind(behind) => behind.fmt(f),
        }
    }
}

impl fmt::Display for Behind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.number)?;
        match (self.hash, self.store) {
            (None, None) => Ok(()),
            (Some(hash), None) => write!(f, "-{hash:08x}"),
            (None, Some(store)) => write!(f, "--{store:08x}"),
            (Some(hash), Some(store)) => write!(f, "-{hash:08x}-{store:08x}"),
        }
    }
}

impl FromStr for Cursor {
    type Err = InvalidCursor;

    fn from_str(text: &str) -> Result<Self, InvalidCursor> {
        let mark = |part: Option<&str>| match part {
            None | Some("") => Some(None),
            Some(part) => u32::from_str_radix(part, 16).ok().map(Some),
        };
        let read = || {
            let mut parts = text.splitn(3, '-');
            let number = parts.next()?.parse().ok().filter(|number| *number > 0)?;
            let (hash, store) = (mark(parts.next())?, mark(parts.next())?);
            Some(Self(CursorPosition::Behind(Behind { number, hash, store })))
        };
        let cursor = match text {
            "start" => Some(Self::start()),
            "now" => Some(Self::now()),
            _ => read(),
        };
        // A cursor has exactly one text form.
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
            (Cursor::behind(7, Some(&hash)).in_store(Some(0xa)), "7-0f0f0f0f-0000000a"),
            (Cursor::behind(7, None).in_store(Some(0xa)), "7--0000000a"),
            (Cursor::start().in_store(Some(0xa)), "start"),
        ] {
            assert_eq!(cursor.to_string(), text);
            assert_eq!(text.parse(), Ok(cursor));
            let json = serde_json::to_string(&cursor).unwrap();
            assert_eq!(serde_json::from_str::<Cursor>(&json).unwrap(), cursor);
        }
    }

    /// Spec: X2
    #[test]
    fn cursor_fits_its_own_store() {
        let cursor = Cursor::behind(7, None);
        assert!(cursor.fits_store(Some(1)), "an earlier version wrote no marks");
        let marked = cursor.in_store(Some(1));
        assert!(marked.fits_store(Some(1)) && marked.fits_store(None));
        assert!(!marked.fits_store(Some(2)));
    }

    #[test]
    fn what_is_no_cursor_is_refused() {
        for text in [
            "",
            "0",
            "-",
            "7-",
            "7--",
            "7--a",
            "7-0f0f0f0f-",
            "7-0f0f0f0f-0000000a-",
            "-0f0f0f0f",
            "+7",
            "07",
            "7-f",
            "7-0F0F0F0F",
            "7-0f0f0f0f0",
            "Now",
        ] {
            assert_eq!(text.parse::<Cursor>(), Err(InvalidCursor(text.to_owned())), "{text}");
        }
        assert!(serde_json::from_str::<Cursor>("7").is_err());
    }
}
