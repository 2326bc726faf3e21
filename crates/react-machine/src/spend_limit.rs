//! Limits of what several runs may spend together.

use std::fmt;
use std::str::FromStr;

use layer0::code;
use layer0::failure::{Effect, Facts, Failure};
use layer0::usage::nanousd;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Prefix of the key of a label.
const LABEL: &str = "label:";

/// A limit of what the runs of a scope may spend together in a day or a month, in any processes.
///
/// ```
/// use backstop_react_machine::{LimitPeriod, LimitScope, SpendLimit};
///
/// let limit = SpendLimit::new("label:tenant".parse::<LimitScope>()?, LimitPeriod::Day, 5.0);
/// assert_eq!((limit.scope.to_string().as_str(), limit.max_nanousd()), ("label:tenant", 5_000_000_000));
/// # Ok::<(), backstop_react_machine::InvalidLimitScope>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SpendLimit {
    /// Runs whose spending is counted together.
    pub scope: LimitScope,
    /// Period of the limit.
    pub per: LimitPeriod,
    /// Maximum cost in US dollars, above zero.
    pub max_cost_usd: f64,
}

impl SpendLimit {
    /// Returns a limit, in US dollars.
    #[must_use]
    pub const fn new(scope: LimitScope, per: LimitPeriod, max_cost_usd: f64) -> Self {
        Self { scope, per, max_cost_usd }
    }

    /// Returns the limit in billionths of a US dollar.
    #[must_use]
    pub fn max_nanousd(&self) -> u64 {
        nanousd(self.max_cost_usd)
    }

    /// Returns whether both limits count the same spending.
    #[must_use]
    pub fn counts_as(&self, other: &Self) -> bool {
        self.scope == other.scope && self.per == other.per
    }
}

/// The runs whose spending a limit counts. As text: `agent`, `global`, `label:KEY` or `session`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[non_exhaustive]
pub enum LimitScope {
    /// All runs of agents with this name.
    Agent,
    /// All runs with such a limit.
    Global,
    /// All runs whose label with this key has the same value. It does not limit runs without the label.
    Label(String),
    /// All runs of the session.
    Session,
}

impl FromStr for LimitScope {
    type Err = InvalidLimitScope;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "agent" => Ok(Self::Agent),
            "global" => Ok(Self::Global),
            "session" => Ok(Self::Session),
            _ => match text.strip_prefix(LABEL).filter(|key| !key.trim().is_empty()) {
                Some(key) => Ok(Self::Label(key.to_owned())),
                None => Err(InvalidLimitScope(text.to_owned())),
            },
        }
    }
}

impl fmt::Display for LimitScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent => f.write_str("agent"),
            Self::Global => f.write_str("global"),
            Self::Label(key) => write!(f, "{LABEL}{key}"),
            Self::Session => f.write_str("session"),
        }
    }
}

impl TryFrom<String> for LimitScope {
    type Error = InvalidLimitScope;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<LimitScope> for String {
    fn from(scope: LimitScope) -> Self {
        scope.to_string()
    }
}

/// Error for a text that is not a scope of a spend limit.
///
/// Retry: never. Effect: none.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is no scope of a limit")]
pub struct InvalidLimitScope(String);

impl Failure for InvalidLimitScope {
    fn facts(&self) -> Facts {
        Facts::never(code::CONFIG_INVALID, Effect::None)
    }
}

/// The period of a limit, by the calendar in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LimitPeriod {
    /// From midnight to midnight.
    Day,
    /// From the first of a month to the first of the next.
    Month,
}

impl LimitPeriod {
    /// Returns its name, `day` or `month`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Month => "month",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: B4
    #[test]
    fn same_spending_is_counted_once() {
        let limit = |scope: &str, per, max| SpendLimit::new(scope.parse().unwrap(), per, max);
        let own = limit("agent", LimitPeriod::Day, 1.0);
        for (other, is_same) in [
            (limit("agent", LimitPeriod::Day, 2.0), true),
            (limit("agent", LimitPeriod::Month, 1.0), false),
            (limit("session", LimitPeriod::Day, 1.0), false),
        ] {
            assert_eq!(own.counts_as(&other), is_same, "{other:?}");
        }
        assert_eq!(own.max_nanousd(), 1_000_000_000);
    }

    /// Spec: B4
    #[test]
    fn scopes_are_read_as_they_are_written() {
        for text in ["agent", "global", "label:tenant", "label:a b", "session"] {
            assert_eq!(text.parse::<LimitScope>().unwrap().to_string(), text);
        }
        for text in ["", "label", "label:", "label: ", "Agent", "tenant"] {
            assert!(text.parse::<LimitScope>().is_err(), "{text}");
        }
    }
}
