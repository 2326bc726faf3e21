//! The part of an agent that determines the machine's decisions.

use std::ops::Deref;
use std::sync::Arc;

use layer0::{JsonText, ToolSpec, is_deeper};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::budget::Budget;
use crate::fnv::Fnv1a;
use crate::hook::HookRecord;
use crate::limits::Limits;
use crate::price::Price;
use crate::spend_limit::SpendLimit;
use layer0::code;
use layer0::failure::{Effect, Facts, Failure};

/// Maximum nesting depth of an output schema: it is read again inside of the definition, for which the limit of
/// serde_json is 128.
const MAX_SCHEMA_DEPTH: usize = 100;

/// A resolved agent: everything needed to rebuild a run, without secrets.
///
/// It is recorded in `run.started`. The machine reads all fields but `runtime`, which is for the driver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AgentDefinition {
    /// The agent's name.
    pub name: Arc<str>,
    /// System message at the start of every conversation; may be empty.
    pub instructions: Arc<str>,
    /// Limits of the guards.
    pub limits: Limits,
    /// Budget of a run.
    #[serde(default)]
    pub budget: Budget,
    /// Limits of what several runs may spend together.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub spend_limits: Arc<[SpendLimit]>,
    /// Price of tokens, if known.
    #[serde(default)]
    pub price: Option<Price>,
    /// Whether there is a memory to read before the first model call and to write at the end.
    #[serde(default)]
    pub memory: bool,
    /// Hooks that are called at points of a run, in the order of their calls.
    #[serde(default)]
    pub hooks: Arc<[HookRecord]>,
    /// Parts of names, case-insensitive, of further exploratory tools besides those that declare it.
    #[serde(default)]
    pub exploratory_tools: Arc<[String]>,
    /// Tools, in the order in which the model sees them.
    pub tools: Arc<[ToolSpec]>,
    /// Values besides the tools' specs that determine what calls do: grants, and servers by name under the key
    /// `servers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contract: Option<JsonText>,
    /// JSON Schema of the final answer, if it has to fit one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<JsonText>,
    /// Further data for the driver: model, retry, policy.
    pub runtime: JsonText,
}

impl AgentDefinition {
    /// Returns arguments in the form in which a tool of the agent takes them: arguments with the same meaning to it
    /// have the same text.
    pub(crate) fn canonicalize_arguments(&self, tool: &str, arguments: &JsonText) -> JsonText {
        let spec = self.tools.iter().find(|spec| *spec.name == *tool);
        spec.map_or_else(|| arguments.clone(), |spec| arguments.taken_by(&spec.schema))
    }

    /// Returns an agent without tools and with the default limits.
    pub fn new(name: impl Into<Arc<str>>, instructions: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            instructions: instructions.into(),
            limits: Limits::default(),
            budget: Budget::default(),
            spend_limits: Arc::default(),
            price: None,
            memory: false,
            hooks: Arc::default(),
            exploratory_tools: Arc::default(),
            tools: Arc::default(),
            contract: None,
            output_schema: None,
            runtime: JsonText::default(),
        }
    }

    /// Checks the definition for values that the machine does not support.
    fn validate(&self) -> Result<(), DefinitionError> {
        let limits = &self.limits;
        let zero = [
            ("max_iterations", limits.max_iterations == 0),
            ("max_concurrent_tools", limits.max_concurrent_tools == 0),
            ("max_repeated_failures", limits.max_repeated_failures == Some(0)),
            ("tool_timeout_ms", limits.tool_timeout_ms == 0),
            ("hook_timeout_ms", limits.hook_timeout_ms == 0),
            ("memory_timeout_ms", limits.memory_timeout_ms == 0),
            ("store_timeout_ms", limits.store_timeout_ms == 0),
        ];
        if let Some((key, _)) = zero.into_iter().find(|(_, is_zero)| *is_zero) {
            return Err(DefinitionError::ZeroLimit(key));
        }
        check_amount("max_cost_usd", self.budget.max_cost_usd)?;
        self.price.map_or(Ok(()), Price::check)?;
        for limit in &*self.spend_limits {
            check_amount("limit.max_cost_usd", Some(limit.max_cost_usd))?;
            if limit.max_nanousd() == 0 {
                let (key, amount) = ("limit.max_cost_usd", limit.max_cost_usd.to_string());
                return Err(DefinitionError::NoAmount { key, amount });
            }
        }
        let is_priced = self.price.is_some();
        if !is_priced && (self.budget.max_cost_usd.is_some() || !self.spend_limits.is_empty()) {
            return Err(DefinitionError::UnknownPrice);
        }
        let schema = self.output_schema.as_ref();
        if schema.is_some_and(|schema| is_deeper(&schema.value(), MAX_SCHEMA_DEPTH)) {
            return Err(DefinitionError::TooDeep("output_schema", MAX_SCHEMA_DEPTH));
        }
        Ok(())
    }
}

fn is_empty(limits: &Arc<[SpendLimit]>) -> bool {
    limits.is_empty()
}

fn check_amount(key: &'static str, amount: Option<f64>) -> Result<(), DefinitionError> {
    match amount {
        Some(amount) if !amount.is_finite() || amount < 0.0 => {
            Err(DefinitionError::NoAmount { key, amount: amount.to_string() })
        }
        _ => Ok(()),
    }
}

impl Price {
    /// Refuses prices that are not amounts of money.
    ///
    /// # Errors
    ///
    /// [`DefinitionError::NoAmount`], naming the key.
    pub fn check(self) -> Result<(), DefinitionError> {
        check_amount("input_per_mtok", Some(self.input_per_mtok))?;
        check_amount("output_per_mtok", Some(self.output_per_mtok))?;
        check_amount("cached_input_per_mtok", self.cached_input_per_mtok)?;
        check_amount("cache_write_per_mtok", self.cache_write_per_mtok)
    }
}

/// A checked definition that machines can run, with values derived from it once for all of them.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedDefinition {
    definition: Arc<AgentDefinition>,
    /// Digest of the tools offered to the model.
    tools_digest: Arc<str>,
}

impl CheckedDefinition {
    /// Checks a definition.
    ///
    /// # Errors
    ///
    /// [`DefinitionError`], naming the key with the unsupported value.
    pub fn new(definition: AgentDefinition) -> Result<Self, DefinitionError> {
        definition.validate()?;
        let mut digest = Fnv1a::default();
        digest.add(&definition.tools);
        Ok(Self { definition: Arc::new(definition), tools_digest: digest.hex() })
    }

    pub(crate) const fn tools_digest(&self) -> &Arc<str> {
        &self.tools_digest
    }
}

impl Deref for CheckedDefinition {
    type Target = AgentDefinition;

    fn deref(&self) -> &AgentDefinition {
        &self.definition
    }
}

/// The reason that an agent cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DefinitionError {
    /// The value is not an amount of money.
    ///
    /// Retry: never. Effect: none.
    #[error("`{key}` must be a finite number that is not negative, and is `{amount}`")]
    #[non_exhaustive]
    NoAmount {
        /// The key.
        key: &'static str,
        /// The given value.
        amount: String,
    },
    /// A required text is empty.
    ///
    /// Retry: never. Effect: none.
    #[error("`{0}` must not be empty")]
    Empty(&'static str),
    /// A setting exceeds the maximum that providers accept.
    ///
    /// Retry: never. Effect: none.
    #[error("`{key}` must be from 0 to {max}, and is `{given}`")]
    #[non_exhaustive]
    OutOfRange {
        /// The key.
        key: &'static str,
        /// Its maximum.
        max: String,
        /// The given value.
        given: String,
    },
    /// A value is nested too deeply for a record to be read again.
    ///
    /// Retry: never. Effect: none.
    #[error("`{0}` is nested deeper than {1} levels")]
    TooDeep(&'static str, usize),
    /// A cost budget or a spend limit needs the price of every model, and one has none; `AgentBuilder::price` sets the
    /// price of all of an agent's models, `Upstream::price` of one.
    ///
    /// Retry: never. Effect: none.
    #[error("`max_cost_usd` needs a price, and a model of the agent has none")]
    UnknownPrice,
    /// A limit that must be at least one is zero.
    ///
    /// Retry: never. Effect: none.
    #[error("`{0}` must be at least 1")]
    ZeroLimit(&'static str),
}

impl Failure for DefinitionError {
    fn facts(&self) -> Facts {
        match self {
            Self::NoAmount { .. }
            | Self::Empty(_)
            | Self::OutOfRange { .. }
            | Self::TooDeep(..)
            | Self::UnknownPrice
            | Self::ZeroLimit(_) => Facts::never(code::CONFIG_INVALID, Effect::None),
        }
    }
}

impl DefinitionError {
    /// Returns the error for a setting below 0 or above `max`.
    #[must_use]
    pub fn out_of_range(key: &'static str, given: f32, max: f32) -> Self {
        Self::OutOfRange { key, max: max.to_string(), given: given.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::spend_limit::{LimitPeriod, LimitScope};

    fn refusal(change: impl FnOnce(&mut AgentDefinition)) -> Option<String> {
        let mut definition = AgentDefinition::new("a", "");
        change(&mut definition);
        definition.validate().err().map(|error| error.to_string())
    }

    #[test]
    fn zero_limit_is_refused_by_its_key() {
        let check = |key: &str, change: fn(&mut Limits, u64)| {
            assert_eq!(refusal(|it| change(&mut it.limits, 1)), None, "{key}");
            let why = format!("`{key}` must be at least 1");
            assert_eq!(refusal(|it| change(&mut it.limits, 0)), Some(why));
        };
        check("max_iterations", |it, max| it.max_iterations = u32::from(max > 0));
        check("max_concurrent_tools", |it, max| it.max_concurrent_tools = u32::from(max > 0));
        check("max_repeated_failures", |it, max| {
            it.max_repeated_failures = Some(u32::from(max > 0));
        });
        check("tool_timeout_ms", |it, max| it.tool_timeout_ms = max);
        check("hook_timeout_ms", |it, max| it.hook_timeout_ms = max);
        check("memory_timeout_ms", |it, max| it.memory_timeout_ms = max);
        check("store_timeout_ms", |it, max| it.store_timeout_ms = max);
    }

    /// Spec: B1, B4
    #[test]
    fn amount_that_is_no_money_is_refused() {
        const NONE: &str = "must be a finite number that is not negative, and is";
        let check = |key: &str, change: fn(&mut AgentDefinition, f64)| {
            for (amount, shown) in [(-0.5, "-0.5"), (f64::NAN, "NaN"), (f64::INFINITY, "inf")] {
                let why = format!("`{key}` {NONE} `{shown}`");
                assert_eq!(refusal(|it| change(it, amount)), Some(why));
            }
            assert_eq!(refusal(|it| change(it, 0.5)), None, "{key}");
        };
        let priced = |it: &mut AgentDefinition| it.price = Some(Price::new(1.0, 1.0));
        check("max_cost_usd", |it, amount| {
            (it.budget.max_cost_usd, it.price) = (Some(amount), Some(Price::new(1.0, 1.0)));
        });
        check("limit.max_cost_usd", |it, amount| {
            it.price = Some(Price::new(1.0, 1.0));
            it.spend_limits = [SpendLimit::new(LimitScope::Agent, LimitPeriod::Day, amount)].into();
        });
        check("input_per_mtok", |it, amount| it.price = Some(Price::new(amount, 1.0)));
        check("output_per_mtok", |it, amount| it.price = Some(Price::new(1.0, amount)));
        check("cached_input_per_mtok", |it, amount| {
            it.price = Some(Price::new(1.0, 1.0).cached_input(amount));
        });
        check("cache_write_per_mtok", |it, amount| {
            it.price = Some(Price::new(1.0, 1.0).cache_write(amount));
        });
        let free = refusal(|it| {
            priced(it);
            (it.budget.max_cost_usd, it.price) = (Some(0.0), Some(Price::new(0.0, 0.0)));
        });
        assert_eq!(free, None, "nothing may cost nothing");
        let none = refusal(|it| {
            priced(it);
            it.spend_limits = [SpendLimit::new(LimitScope::Agent, LimitPeriod::Day, 0.0)].into();
        });
        assert_eq!(none, Some(format!("`limit.max_cost_usd` {NONE} `0`")));
    }

    /// Spec: B1, B4
    #[test]
    fn bounded_cost_without_a_price_is_refused() {
        let why =
            Some("`max_cost_usd` needs a price, and a model of the agent has none".to_owned());
        assert_eq!(refusal(|it| it.budget.max_cost_usd = Some(1.0)), why);
        let limit = || [SpendLimit::new(LimitScope::Agent, LimitPeriod::Day, 1.0)].into();
        assert_eq!(refusal(|it| it.spend_limits = limit()), why);
        assert_eq!(refusal(|_| ()), None);
    }

    /// Spec: D2. An agent without limits has the definition that it had before there were any.
    #[test]
    fn only_given_spend_limits_are_recorded() {
        let mut definition = AgentDefinition::new("a", "");
        let key = |definition: &AgentDefinition| json!(definition).get("spend_limits").is_some();
        assert!(!key(&definition));
        definition.spend_limits =
            [SpendLimit::new(LimitScope::Agent, LimitPeriod::Day, 1.0)].into();
        assert!(key(&definition));
    }

    /// Spec: D2. A record has to be read again, whatever stands in it.
    #[test]
    fn schema_too_deep_for_a_record_is_refused() {
        let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!({ "not": inner }));
        let check = |schema: Value| {
            let mut definition = AgentDefinition::new("a", "");
            definition.output_schema = Some(JsonText::from_value(&schema).unwrap());
            definition.validate().map_err(|error| error.to_string())
        };
        assert_eq!(check(nested(MAX_SCHEMA_DEPTH)), Ok(()));
        assert_eq!(check(json!({ "const": "[".repeat(MAX_SCHEMA_DEPTH + 1) })), Ok(()));
        let why = check(nested(MAX_SCHEMA_DEPTH + 1)).unwrap_err();
        assert!(why.contains("output_schema"), "{why}");
    }
}
