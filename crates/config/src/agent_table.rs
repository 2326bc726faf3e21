//! `[agent]`: the same table in agent files and in scenarios.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use backstop_react_machine::{Budget, Limits, Price};
use backstop_retry::RetryConfig;
use serde::Deserialize;
use serde::de::{self, Deserializer, Unexpected, Visitor};
use serde_json::Value;

use crate::ConfigError;
use crate::checked::{agent_name, at_least_one, grants};
use crate::grant::resolve_grant;
use crate::read::read_text;

/// The agent, independent of the model that answers.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct AgentTable {
    /// The agent's name, at most 64 characters.
    #[serde(deserialize_with = "agent_name")]
    pub name: Option<String>,
    /// Purpose of the agent, for its callers, which are not shown its instructions.
    pub description: Option<String>,
    /// JSON Schema of the input.
    pub input_schema: Option<Value>,
    /// JSON Schema of the answer.
    pub output_schema: Option<Value>,
    /// Instructions for the model.
    pub instructions: Option<String>,
    /// File with the instructions, in place of `instructions`.
    pub instructions_file: Option<PathBuf>,
    /// Input if the caller gives none.
    pub input: Option<String>,
    /// The limits of a run.
    pub limits: LimitsTable,
    /// Retries of model calls.
    pub retry: RetryTable,
    /// Permissions of the tools.
    pub policy: PolicyTable,
    /// Budget of a run.
    pub budget: BudgetTable,
    /// Prices of tokens.
    pub price: Option<PriceTable>,
}

/// `[agent.budget]`; an absent field keeps its default, `"off"` is without bound. Fields for which zero would stop
/// every run before its first model call refuse zero.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct BudgetTable {
    /// Model attempts.
    #[serde(deserialize_with = "bound_from_one")]
    pub max_model_calls: Option<BoundSetting>,
    /// Tool executions.
    pub max_tool_calls: Option<BoundSetting>,
    /// Prompt tokens.
    #[serde(deserialize_with = "bound_from_one")]
    pub max_input_tokens: Option<BoundSetting>,
    /// Answer tokens.
    #[serde(deserialize_with = "bound_from_one")]
    pub max_output_tokens: Option<BoundSetting>,
    /// Prompt and answer tokens.
    #[serde(deserialize_with = "bound_from_one")]
    pub max_total_tokens: Option<BoundSetting>,
    /// US dollars.
    #[serde(deserialize_with = "dollars_or_off")]
    pub max_cost_usd: Option<f64>,
    /// Milliseconds.
    #[serde(deserialize_with = "bound_from_one")]
    pub max_wall_ms: Option<BoundSetting>,
    /// Log events.
    #[serde(deserialize_with = "bound_from_one")]
    pub max_events: Option<BoundSetting>,
    /// Dispatches above a run.
    pub max_depth: Option<BoundSetting>,
}

/// `[agent.price]`, in US dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PriceTable {
    /// Prompt tokens.
    #[serde(deserialize_with = "amount")]
    pub input_per_mtok: f64,
    /// Answer tokens.
    #[serde(deserialize_with = "amount")]
    pub output_per_mtok: f64,
    /// Prompt tokens read from the provider's cache; the price of other prompt tokens by default.
    #[serde(default, deserialize_with = "optional_amount")]
    pub cached_input_per_mtok: Option<f64>,
    /// Prompt tokens written to the provider's cache; the price of other prompt tokens by default.
    #[serde(default, deserialize_with = "optional_amount")]
    pub cache_write_per_mtok: Option<f64>,
}

impl From<PriceTable> for Price {
    fn from(table: PriceTable) -> Self {
        let mut price = Self::new(table.input_per_mtok, table.output_per_mtok);
        price.cached_input_per_mtok = table.cached_input_per_mtok;
        price.cache_write_per_mtok = table.cache_write_per_mtok;
        price
    }
}

/// `[agent.limits]`; an absent field keeps its default.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct LimitsTable {
    /// Limit of model calls in a run.
    #[serde(deserialize_with = "at_least_one")]
    pub max_iterations: Option<u32>,
    /// Limit of tool calls that the model may request at once.
    pub max_parallel_tools: Option<u32>,
    /// Limit of tools that run at the same time.
    #[serde(deserialize_with = "at_least_one")]
    pub max_concurrent_tools: Option<u32>,
    /// Timeout of a tool, in milliseconds.
    #[serde(deserialize_with = "at_least_one")]
    pub tool_timeout_ms: Option<u64>,
    /// Limit of requests for the same batch of tool calls.
    pub max_repeated_batch_steps: Option<BoundSetting>,
    /// Limit of requests for the same batch while it makes progress.
    pub max_observation_steps: Option<BoundSetting>,
    /// Limit of repetitions of the same text of the model.
    pub max_stagnation_steps: Option<BoundSetting>,
    /// Limit of consecutive failures of the same call with the same code.
    pub max_repeated_failures: Option<BoundSetting>,
    /// Parts of names of tools that only read.
    pub exploratory_tools: Vec<String>,
    /// Largest size of a tool's output, in bytes of text; of a larger one the model reads only the beginning.
    pub max_result_bytes: Option<u64>,
    /// Timeout of one call of a hook, in milliseconds.
    #[serde(deserialize_with = "at_least_one")]
    pub hook_timeout_ms: Option<u64>,
    /// Timeout of one read or write of the memory, in milliseconds.
    #[serde(deserialize_with = "at_least_one")]
    pub memory_timeout_ms: Option<u64>,
    /// Timeout of one call of a store, in milliseconds.
    #[serde(deserialize_with = "at_least_one")]
    pub store_timeout_ms: Option<u64>,
}

/// A bound: a number, or `"off"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoundSetting {
    /// No bound.
    Off,
    /// This bound.
    At(u64),
}

impl BoundSetting {
    /// Returns the bound, or the default if absent; `Off` is `None`.
    fn or(given: Option<Self>, default: Option<u64>) -> Option<u64> {
        match given {
            None => default,
            Some(Self::Off) => None,
            Some(Self::At(bound)) => Some(bound),
        }
    }
}

impl<'de> Deserialize<'de> for BoundSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberOrOff;
        impl Visitor<'_> for NumberOrOff {
            type Value = BoundSetting;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number from 0 on, or \"off\"")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<BoundSetting, E> {
                Ok(BoundSetting::At(number))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<BoundSetting, E> {
                u64::try_from(number)
                    .map(BoundSetting::At)
                    .map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<BoundSetting, E> {
                match text {
                    "off" => Ok(BoundSetting::Off),
                    other => Err(E::invalid_value(Unexpected::Str(other), &self)),
                }
            }
        }
        deserializer.deserialize_any(NumberOrOff)
    }
}

/// Reads a bound and refuses zero.
fn bound_from_one<'de, D: Deserializer<'de>>(from: D) -> Result<Option<BoundSetting>, D::Error> {
    match BoundSetting::deserialize(from)? {
        BoundSetting::At(0) => Err(de::Error::custom("must be at least 1, or \"off\"")),
        bound => Ok(Some(bound)),
    }
}

/// Reads an amount of money; a finite number that is not negative.
fn amount<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let amount = f64::deserialize(deserializer)?;
    if amount.is_finite() && amount >= 0.0 {
        return Ok(amount);
    }
    let expected = "a finite number that is not negative";
    Err(de::Error::invalid_value(Unexpected::Float(amount), &expected))
}

/// Reads an optional amount as [`amount`] does.
fn optional_amount<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    amount(from).map(Some)
}

/// Reads an amount of money; `"off"` is `None`, the default.
fn dollars_or_off<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    struct DollarsOrOff;
    impl Visitor<'_> for DollarsOrOff {
        type Value = Option<f64>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an amount in US dollars, or \"off\"")
        }

        fn visit_f64<E: de::Error>(self, amount: f64) -> Result<Option<f64>, E> {
            if amount.is_finite() && amount >= 0.0 {
                return Ok(Some(amount));
            }
            Err(E::invalid_value(Unexpected::Float(amount), &self))
        }

        fn visit_u64<E: de::Error>(self, amount: u64) -> Result<Option<f64>, E> {
            self.visit_i64(i64::try_from(amount).unwrap_or(i64::MAX))
        }

        #[expect(clippy::cast_precision_loss, reason = "what is lost is less than a dollar")]
        fn visit_i64<E: de::Error>(self, amount: i64) -> Result<Option<f64>, E> {
            if amount < 0 {
                return Err(E::invalid_value(Unexpected::Signed(amount), &self));
            }
            Ok(Some(amount as f64))
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Option<f64>, E> {
            match text {
                "off" => Ok(None),
                other => Err(E::invalid_value(Unexpected::Str(other), &self)),
            }
        }
    }
    deserializer.deserialize_any(DollarsOrOff)
}

/// Returns a bound in 32 bits as [`BoundSetting::or`] does; a bound that does not fit is `None`.
fn small(given: Option<BoundSetting>, default: Option<u32>) -> Option<u32> {
    BoundSetting::or(given, default.map(u64::from)).and_then(|bound| u32::try_from(bound).ok())
}

/// `[agent.retry]`; an absent field keeps its default.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct RetryTable {
    /// Number of attempts, the first included.
    #[serde(deserialize_with = "at_least_one")]
    pub attempts: Option<u32>,
    /// Bound of the first delay, in milliseconds.
    pub base_ms: Option<u64>,
    /// Largest bound of a delay, in milliseconds.
    pub cap_ms: Option<u64>,
    /// Longest delay at an endpoint's request, in milliseconds; a longer one ends the call.
    pub max_retry_after_ms: Option<u64>,
    /// Time limit of attempts and delays together, in milliseconds.
    pub deadline_ms: Option<u64>,
    /// Longest time for which a run may be parked when an endpoint asks for a wait, in milliseconds. A run that
    /// the command starts itself is never parked.
    pub max_park_ms: Option<u64>,
}

/// `[agent.policy]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct PolicyTable {
    /// Capabilities that the tools may use.
    #[serde(deserialize_with = "grants")]
    pub grant: Vec<String>,
}

impl AgentTable {
    /// Returns the limits with the defaults filled in.
    #[must_use]
    pub fn limits(&self) -> Limits {
        let defaults = Limits::default();
        let table = &self.limits;
        let mut limits = defaults;
        limits.max_iterations = table.max_iterations.unwrap_or(defaults.max_iterations);
        limits.max_parallel_tools = table.max_parallel_tools.unwrap_or(defaults.max_parallel_tools);
        limits.max_concurrent_tools =
            table.max_concurrent_tools.unwrap_or(defaults.max_concurrent_tools);
        limits.tool_timeout_ms = table.tool_timeout_ms.unwrap_or(defaults.tool_timeout_ms);
        limits.max_result_bytes = table.max_result_bytes.unwrap_or(defaults.max_result_bytes);
        limits.hook_timeout_ms = table.hook_timeout_ms.unwrap_or(defaults.hook_timeout_ms);
        limits.memory_timeout_ms = table.memory_timeout_ms.unwrap_or(defaults.memory_timeout_ms);
        limits.store_timeout_ms = table.store_timeout_ms.unwrap_or(defaults.store_timeout_ms);
        limits.max_repeated_batch_steps =
            small(table.max_repeated_batch_steps, defaults.max_repeated_batch_steps);
        limits.max_observation_steps =
            small(table.max_observation_steps, defaults.max_observation_steps);
        limits.max_stagnation_steps =
            small(table.max_stagnation_steps, defaults.max_stagnation_steps);
        limits.max_repeated_failures =
            small(table.max_repeated_failures, defaults.max_repeated_failures);
        limits
    }

    /// Returns the budget with the defaults filled in.
    #[must_use]
    pub fn budget(&self) -> Budget {
        let defaults = Budget::default();
        let table = &self.budget;
        let mut budget = defaults;
        budget.max_model_calls = small(table.max_model_calls, defaults.max_model_calls);
        budget.max_tool_calls = small(table.max_tool_calls, defaults.max_tool_calls);
        budget.max_input_tokens =
            BoundSetting::or(table.max_input_tokens, defaults.max_input_tokens);
        budget.max_output_tokens =
            BoundSetting::or(table.max_output_tokens, defaults.max_output_tokens);
        budget.max_total_tokens =
            BoundSetting::or(table.max_total_tokens, defaults.max_total_tokens);
        budget.max_cost_usd = table.max_cost_usd.or(defaults.max_cost_usd);
        budget.max_wall_ms = BoundSetting::or(table.max_wall_ms, defaults.max_wall_ms);
        budget.max_events = BoundSetting::or(table.max_events, defaults.max_events);
        budget.max_depth = small(table.max_depth, defaults.max_depth);
        budget
    }

    /// Returns the prices of tokens.
    #[must_use]
    pub fn price(&self) -> Option<Price> {
        self.price.map(Price::from)
    }

    /// Returns the retry configuration with the defaults filled in.
    #[must_use]
    pub fn retry(&self) -> RetryConfig {
        let defaults = RetryConfig::default();
        let table = &self.retry;
        let mut config = defaults;
        config.attempts = table.attempts.unwrap_or(defaults.attempts);
        config.base_ms = table.base_ms.unwrap_or(defaults.base_ms);
        config.cap_ms = table.cap_ms.unwrap_or(defaults.cap_ms);
        config.max_retry_after_ms = table.max_retry_after_ms.unwrap_or(defaults.max_retry_after_ms);
        config.deadline_ms = table.deadline_ms.unwrap_or(defaults.deadline_ms);
        config
    }

    /// Returns the longest time for which a run may be parked.
    #[must_use]
    pub fn max_park(&self) -> Option<Duration> {
        self.retry.max_park_ms.map(Duration::from_millis)
    }

    /// Returns the instructions. Reads `instructions_file`, relative to `folder`, if the table has it.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if both keys are present or the file cannot be read.
    pub fn instructions(&self, file: &Path, folder: &Path) -> Result<String, ConfigError> {
        match (&self.instructions, &self.instructions_file) {
            (Some(_), Some(_)) => {
                Err(ConfigError::new(file, "`instructions` and `instructions_file` are both given")
                    .with_hint("keep one of them"))
            }
            (Some(text), None) => Ok(text.clone()),
            (None, Some(path)) => read_text(&folder.join(path)).map_err(|error| {
                error.with_hint(
                    "`instructions_file` names it; a relative path is below the agent file's folder",
                )
            }),
            (None, None) => Ok(String::new()),
        }
    }

    /// Returns the grants. The folders of file-system grants are resolved against `folder`, links included.
    #[must_use]
    pub fn grants(&self, folder: &Path) -> Vec<String> {
        self.policy.grant.iter().map(|grant| resolve_grant(grant, folder)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: B1
    #[test]
    fn amounts_of_money_are_finite_and_not_negative() {
        #[track_caller]
        fn check(number: &str, is_amount: bool) {
            let price = format!("[price]\ninput_per_mtok = {number}\noutput_per_mtok = 1");
            assert_eq!(toml::from_str::<AgentTable>(&price).is_ok(), is_amount, "{price}");
            let budget = format!("[budget]\nmax_cost_usd = {number}");
            assert_eq!(toml::from_str::<AgentTable>(&budget).is_ok(), is_amount, "{budget}");
        }
        for amount in ["0", "3", "0.25", "1e-3", "4000000000"] {
            check(amount, true);
        }
        for other in ["nan", "-nan", "inf", "-inf", "-0.5", "-1", "\"3\""] {
            check(other, false);
        }
    }
}
