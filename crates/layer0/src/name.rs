//! Names of tools, hooks, operators and sessions.

use std::borrow::Cow;

use thiserror::Error;

use crate::code;
use crate::failure::{Effect, Facts, Failure};

/// Maximum length of a name, in characters.
pub const MAX_NAME_CHARS: usize = 64;

/// Maximum length of a session's name, in bytes.
pub const MAX_SESSION_BYTES: usize = 256;

/// The reason that a text is no valid name of a tool, a hook or an operator.
///
/// Retry: never. Effect: none.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the name `{shown}` {why}")]
#[non_exhaustive]
pub struct NameError {
    /// The name, as far as it can be shown.
    pub shown: String,
    /// The problem with it.
    pub why: &'static str,
}

impl Failure for NameError {
    fn facts(&self) -> Facts {
        Facts::never(code::INPUT_INVALID, Effect::None)
    }
}

/// Checks the name of a tool, a hook or an operator: 1 to 64 characters, at least one of them an ASCII
/// letter or digit, no control characters, and no space at either end.
///
/// ```
/// use layer0::name::check_name;
///
/// assert!(check_name("web.search").is_ok());
/// assert_eq!(check_name("").unwrap_err().to_string(), "the name `` is empty");
/// ```
///
/// # Errors
///
/// [`NameError`].
pub fn check_name(name: &str) -> Result<(), NameError> {
    let why = if name.is_empty() {
        "is empty"
    } else if name.chars().any(char::is_control) {
        "has control characters"
    } else if name.trim() != name {
        "begins or ends with a space"
    } else if name.chars().count() > MAX_NAME_CHARS {
        "has more than 64 characters"
    } else if !name.contains(|c: char| c.is_ascii_alphanumeric()) {
        "has no ASCII letter or digit"
    } else {
        return Ok(());
    };
    let shown = name.chars().filter(|c| !c.is_control()).take(MAX_NAME_CHARS).collect();
    Err(NameError { shown, why })
}

/// Checks the name of a behaviour, which is also the name of its subscription: as [`check_name`], but only ASCII
/// letters, digits, spaces, `_`, `-` and `.`, and no dot with a number at its end, because the record is named
/// `sub_NAME`, in segments `sub_NAME.1`, `sub_NAME.2`, ….
///
/// ```
/// use layer0::name::check_behavior_name;
///
/// assert!(check_behavior_name("tell ops").is_ok());
/// assert!(check_behavior_name("tell/ops").is_err() && check_behavior_name("tell.2").is_err());
/// ```
///
/// # Errors
///
/// [`NameError`].
pub fn check_behavior_name(name: &str) -> Result<(), NameError> {
    check_name(name)?;
    let is_taken = |c: char| c.is_ascii_alphanumeric() || matches!(c, ' ' | '_' | '-' | '.');
    let is_number = |end: &str| !end.is_empty() && end.bytes().all(|byte| byte.is_ascii_digit());
    let why = if !name.chars().all(is_taken) {
        "has other characters than ASCII letters, digits, spaces, `_`, `-` and `.`"
    } else if name.rsplit_once('.').is_some_and(|(_, end)| is_number(end)) {
        "ends with a dot and a number, as the segments of its record do"
    } else {
        return Ok(());
    };
    Err(NameError { shown: name.to_owned(), why })
}

/// The reason that a text is no valid name of a session.
///
/// Retry: never. Effect: none.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the session `{shown}` {why}")]
#[non_exhaustive]
pub struct SessionNameError {
    /// The name, as far as it can be shown.
    pub shown: String,
    /// The problem with it.
    pub why: &'static str,
}

impl Failure for SessionNameError {
    fn facts(&self) -> Facts {
        Facts::never(code::INPUT_INVALID, Effect::None)
    }
}

/// Checks the name of a session: 1 to 256 bytes, not only spaces, no control characters.
///
/// ```
/// use layer0::name::check_session;
///
/// assert!(check_session("ticket 4711").is_ok());
/// assert_eq!(check_session(" ").unwrap_err().to_string(), "the session ` ` must not be empty");
/// ```
///
/// # Errors
///
/// [`SessionNameError`].
pub fn check_session(name: &str) -> Result<(), SessionNameError> {
    let why = if name.trim().is_empty() {
        "must not be empty"
    } else if name.contains(char::is_control) {
        "must not have control characters"
    } else if name.len() > MAX_SESSION_BYTES {
        "must have at most 256 bytes"
    } else {
        return Ok(());
    };
    let shown = name.chars().filter(|c| !c.is_control()).take(MAX_NAME_CHARS).collect();
    Err(SessionNameError { shown, why })
}

/// Returns a name that every provider accepts: letters, digits, `_` and `-`, no digit or `-` at the beginning, at most
/// 64 characters. The same name always has the same result.
///
/// ```
/// use layer0::name::wire_name;
///
/// assert_eq!(wire_name("web_search"), "web_search");
/// assert_eq!(wire_name("web.search"), "web_search");
/// ```
#[must_use]
pub fn wire_name(name: &str) -> Cow<'_, str> {
    let is_taken = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let begins = |c: char| c.is_ascii_alphabetic() || c == '_';
    // Only ASCII is accepted, so each byte is a character.
    let is_as_it_is = name.bytes().all(|byte| is_taken(char::from(byte)));
    if is_as_it_is && name.starts_with(begins) && name.len() <= MAX_NAME_CHARS {
        return Cow::Borrowed(name);
    }
    let prefix = if name.starts_with(|c| begins(c) || !is_taken(c)) { "" } else { "_" };
    let mapped = name.chars().map(|c| if is_taken(c) { c } else { '_' });
    Cow::Owned(prefix.chars().chain(mapped).take(MAX_NAME_CHARS).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: T15
    #[test]
    fn names_are_checked() {
        for name in ["a", "web.search", "2fa", "s\u{fc}che x", "sql query", &"a".repeat(64)] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        for name in
            ["", " ", " a", "a ", "a\nb", "\u{7f}", "\u{1b}[2Ja", "---", "\u{fc}", &"a".repeat(65)]
        {
            assert!(check_name(name).is_err(), "{name:?}");
        }
    }

    /// Spec: X8
    #[test]
    fn behavior_names_are_checked() {
        for name in ["a", "tell ops", "Tell_ops-2", "v1.x", "2", &"a".repeat(64)] {
            assert_eq!(check_behavior_name(name), Ok(()), "{name}");
        }
        for name in ["", " a", "a/b", "a:b", "s\u{fc}d", "a.1", "a.b.22", "---", &"a".repeat(65)] {
            assert!(check_behavior_name(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn sessions_are_checked() {
        for name in ["a", "---", "s\u{fc}d 7", &"a".repeat(256)] {
            assert_eq!(check_session(name), Ok(()), "{name}");
        }
        for name in ["", " ", "\t", "a\nb", "\u{1b}[2J", &"a".repeat(257)] {
            let error = check_session(name).unwrap_err();
            assert!(!error.shown.contains(char::is_control), "{error}");
        }
    }

    /// Spec: T15
    #[test]
    fn names_are_mapped_to_what_providers_take() {
        for (name, mapped) in [
            ("sql", "sql"),
            ("get-tool_2", "get-tool_2"),
            ("web.search", "web_search"),
            ("sql query", "sql_query"),
            ("2fa", "_2fa"),
            ("-x", "_-x"),
            ("s\u{fc}che", "s_che"),
        ] {
            assert_eq!(wire_name(name), mapped);
            assert_eq!(wire_name(&wire_name(name)), mapped, "what is mapped stays");
        }
        assert_eq!(wire_name(&"2".repeat(64)).len(), 64);
    }
}
