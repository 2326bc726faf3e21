//! Text for columns of the type `text`, which accept every character except NUL.
//!
//! NUL is written as U+E000 and `0`, and U+E000 itself as U+E000 and `1`, so that reading returns the original text.
//! JSON contains no raw NUL, and is written as it is.

use std::borrow::Cow;

use sqlx::Row;
use sqlx::postgres::PgRow;

const ESCAPE: char = '\u{e000}';

/// Encodes a text for a column.
pub(crate) fn encode_text(text: &str) -> Cow<'_, str> {
    if !text.contains(['\0', ESCAPE]) {
        return Cow::Borrowed(text);
    }
    let mut stored = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match character {
            '\0' => stored.extend([ESCAPE, '0']),
            ESCAPE => stored.extend([ESCAPE, '1']),
            other => stored.push(other),
        }
    }
    Cow::Owned(stored)
}

/// Decodes a stored text.
pub(crate) fn read(stored: String) -> String {
    if !stored.contains(ESCAPE) {
        return stored;
    }
    let mut text = String::with_capacity(stored.len());
    let mut characters = stored.chars();
    while let Some(character) = characters.next() {
        text.push(match character {
            // Text of another program stays as it is.
            ESCAPE => match characters.next() {
                Some('0') => '\0',
                Some('1') | None => ESCAPE,
                Some(other) => other,
            },
            other => other,
        });
    }
    text
}

/// Reads a column with such a text.
pub(crate) fn column(row: &PgRow, column: &str) -> Result<String, sqlx::Error> {
    row.try_get(column).map(read)
}

/// Reads a nullable column with such a text.
pub(crate) fn optional(row: &PgRow, column: &str) -> Result<Option<String>, sqlx::Error> {
    row.try_get::<Option<String>, _>(column).map(|text| text.map(read))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_comes_back() {
        for text in ["", "plain", "a\0b", "\0", "\u{e000}", "\u{e000}0", "\0\u{e000}1\0", "ü\0€"]
        {
            let kept = encode_text(text).into_owned();
            assert!(!kept.contains('\0'), "{text:?}");
            assert_eq!(read(kept), text);
        }
        assert!(matches!(encode_text("plain"), Cow::Borrowed(_)));
    }
}
