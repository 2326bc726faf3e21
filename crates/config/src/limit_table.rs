//! `[[limit]]` of an agent file.

use std::path::Path;

use backstop_react_machine::{LimitPeriod, LimitScope, SpendLimit};
use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny};
use toml::Spanned;

use crate::ConfigError;
use crate::line::line_number;
use crate::parse::parse;

/// Values of `scope`.
const SCOPES: [&str; 4] = ["agent", "global", "label:KEY", "session"];

/// A spend limit that runs share, for a day or a month.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct LimitTable {
    /// Runs whose spending counts together.
    #[serde(deserialize_with = "scope")]
    pub scope: LimitScope,
    /// Period of the limit.
    pub per: LimitPeriod,
    /// US dollars.
    #[serde(deserialize_with = "above_zero")]
    pub max_cost_usd: f64,
}

impl LimitTable {
    /// Returns the limit.
    #[must_use]
    pub fn limit(&self) -> SpendLimit {
        SpendLimit::new(self.scope.clone(), self.per, self.max_cost_usd)
    }
}

fn scope<'de, D: Deserializer<'de>>(from: D) -> Result<LimitScope, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map_err(|_| D::Error::unknown_variant(&text, &SCOPES))
}

fn above_zero<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let amount = f64::deserialize(from)?;
    // Less than a billionth of a dollar counts as nothing.
    match amount.is_finite() && amount >= 1e-9 {
        true => Ok(amount),
        false => Err(D::Error::custom(format!("must be an amount above 0, and is {amount}"))),
    }
}

/// Finds the places of the limits in the text.
#[derive(Deserialize)]
struct LimitSpans {
    #[serde(default)]
    limit: Vec<Spanned<IgnoredAny>>,
}

/// Refuses two limits that count the same spending.
pub(crate) fn check_limits(
    path: &Path,
    text: &str,
    limits: &[LimitTable],
) -> Result<(), ConfigError> {
    let same = |one: &LimitTable, other: &LimitTable| one.limit().counts_as(&other.limit());
    let double = (1..limits.len()).find_map(|at| {
        let before = limits[..at].iter().position(|other| same(&limits[at], other))?;
        Some((before, at))
    });
    let Some((before, at)) = double else { return Ok(()) };
    let LimitTable { scope, per, .. } = &limits[at];
    let LimitSpans { limit: places } = parse(path, text)?;
    let line = places.get(before).map_or(0, |place| line_number(text, &place.span()));
    let (per, hint) = (per.as_str(), "take one of them out");
    let what = format!("there is already a limit of `{scope}` per {per}, in line {line}");
    let error = ConfigError::new(path, what).with_hint(hint);
    Err(match places.get(at) {
        Some(place) => error.in_text(text, place.span()),
        None => error,
    })
}
