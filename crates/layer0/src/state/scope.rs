use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::code;
use crate::failure::{Effect, Facts, Failure};
use crate::id::{RunId, SessionId};

/// Maximum length of a scope as text, in bytes.
const MAX_BYTES: usize = 256;

/// The owner of a value. As text: `global`, `session:ID`, `agent:NAME`, `run:ID`, or a custom `NAME:ID`.
///
/// ```
/// use layer0::state::Scope;
///
/// let scope: Scope = "session:s-1".parse()?;
/// assert_eq!(scope, Scope::Session("s-1".into()));
/// assert_eq!("tenant:acme".parse::<Scope>()?.to_string(), "tenant:acme");
/// # Ok::<(), layer0::state::InvalidScope>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[non_exhaustive]
pub enum Scope {
    /// The whole store.
    Global,
    /// A session.
    Session(SessionId),
    /// All runs of an agent with this name.
    Agent(String),
    /// A run.
    Run(RunId),
    /// Another owner.
    #[non_exhaustive]
    Custom {
        /// The kind of owner.
        name: String,
        /// The owner's id.
        id: String,
    },
}

impl Scope {
    /// Creates a custom scope.
    ///
    /// # Errors
    ///
    /// [`InvalidScope`], as for the text `name:id`.
    pub fn custom(name: &str, id: &str) -> Result<Self, InvalidScope> {
        format!("{name}:{id}").parse()
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Global => f.write_str("global"),
            Self::Session(id) => write!(f, "session:{id}"),
            Self::Agent(name) => write!(f, "agent:{name}"),
            Self::Run(id) => write!(f, "run:{id}"),
            Self::Custom { name, id } => write!(f, "{name}:{id}"),
        }
    }
}

/// Error of a text that is no scope.
///
/// Retry: never. Effect: none.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is no scope: write `global`, `session:ID`, `agent:NAME`, `run:ID` or `NAME:ID`")]
pub struct InvalidScope(String);

impl Failure for InvalidScope {
    fn facts(&self) -> Facts {
        Facts::never(code::INPUT_INVALID, Effect::None)
    }
}

impl FromStr for Scope {
    type Err = InvalidScope;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "global" {
            return Ok(Self::Global);
        }
        let invalid = || InvalidScope(text.chars().take(MAX_BYTES).collect());
        let (name, id) = text.split_once(':').ok_or_else(invalid)?;
        let is_name = !name.is_empty()
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        let is_id = !id.trim().is_empty() && !id.chars().any(char::is_control);
        if !is_name || !is_id || name == "global" || text.len() > MAX_BYTES {
            return Err(invalid());
        }
        Ok(match name {
            "session" => Self::Session(id.into()),
            "agent" => Self::Agent(id.to_owned()),
            "run" => Self::Run(id.into()),
            name => Self::Custom { name: name.to_owned(), id: id.to_owned() },
        })
    }
}

impl TryFrom<String> for Scope {
    type Error = InvalidScope;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Scope> for String {
    fn from(scope: Scope) -> Self {
        scope.to_string()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    #[test]
    fn text_and_scope_are_the_same() {
        for text in ["global", "session:s-1", "agent:clerk", "run:run_1", "tenant:a:b"] {
            assert_eq!(text.parse::<Scope>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_scope_is_refused() {
        let long = format!("session:{}", "x".repeat(256));
        for text in
            ["", "globe", "session:", "session: ", ":x", "Tenant:x", "global:x", "a:\n", &long]
        {
            assert!(text.parse::<Scope>().is_err(), "{text}");
        }
    }
}
