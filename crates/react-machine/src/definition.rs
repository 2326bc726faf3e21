//! The part of an agent that decides what the machine does.

use std::ops::Deref;
use std::sync::Arc;

use layer0::{JsonText, ToolSpec, is_deeper};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::budget::{Budget, Price};
use crate::fnv::Fnv1a;
use crate::hook::HookRecord;

/// How deep an output schema may be nested: it is read again inside of the definition, which
/// serde_json does down to 128.
const MAX_SCHEMA_DEPTH: usize = 100;

/// A resolved agent: everything a run needs to be rebuilt, without secrets.
///
/// It stands in `run.started`. The machine reads all but `runtime`, which is the driver's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentDefinition {
    /// The agent's name.
    pub name: Arc<str>,
    /// What the model is told at the head of every conversation; may be empty.
    pub instructions: Arc<str>,
    /// The guards' limits.
    pub limits: Limits,
    /// What a run may use.
    #[serde(default)]
    pub budget: Budget,
    /// What tokens cost, where it is known.
    #[serde(default)]
    pub price: Option<Price>,
    /// Is there a memory to read before the first model call and to write at the end?
    #[serde(default)]
    pub memory: bool,
    /// Other people's code that is called at points of a run, in the order it is called.
    #[serde(default)]
    pub hooks: Arc<[HookRecord]>,
    /// Parts of names, in any case, of tools that only look around beside those that declare it.
    #[serde(default)]
    pub exploratory_tools: Arc<[String]>,
    /// The tools, in the order the model sees them.
    pub tools: Arc<[ToolSpec]>,
    /// JSON Schema that the final answer has to fit, where it has to fit one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<JsonText>,
    /// What the driver needs beyond that: model, retry, policy.
    pub runtime: JsonText,
}

impl AgentDefinition {
    /// Makes an agent without tools and with the default limits.
    pub fn new(name: impl Into<Arc<str>>, instructions: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            instructions: instructions.into(),
            limits: Limits::default(),
            budget: Budget::default(),
            price: None,
            memory: false,
            hooks: Arc::default(),
            exploratory_tools: Arc::default(),
            tools: Arc::default(),
            output_schema: None,
            runtime: JsonText::default(),
        }
    }

    /// Checks what the machine cannot work with.
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
        let amounts = [
            ("max_cost_usd", self.budget.max_cost_usd),
            ("input_per_mtok", self.price.map(|price| price.input_per_mtok)),
            ("output_per_mtok", self.price.map(|price| price.output_per_mtok)),
        ];
        let is_amount = |amount: f64| amount.is_finite() && amount >= 0.0;
        for (key, amount) in amounts {
            if let Some(amount) = amount.filter(|amount| !is_amount(*amount)) {
                return Err(DefinitionError::NoAmount { key, amount: amount.to_string() });
            }
        }
        if self.budget.max_cost_usd.is_some() && self.price.is_none() {
            return Err(DefinitionError::UnknownPrice);
        }
        let schema = self.output_schema.as_ref();
        if schema.is_some_and(|schema| is_deeper(&schema.value(), MAX_SCHEMA_DEPTH)) {
            return Err(DefinitionError::TooDeep("output_schema", MAX_SCHEMA_DEPTH));
        }
        Ok(())
    }
}

/// A definition that machines can run, and what is derived from it once for all of them.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedDefinition {
    definition: Arc<AgentDefinition>,
    /// Digest of the tools that the model is offered.
    tools_digest: Arc<str>,
}

impl CheckedDefinition {
    /// Checks a definition.
    ///
    /// # Errors
    ///
    /// [`DefinitionError`], naming the key that the machine cannot work with.
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

/// Limits of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// How many model calls a run may make; retries and resends are not counted.
    pub max_iterations: u32,
    /// How many tool calls the model may ask for at once.
    pub max_parallel_tools: u32,
    /// How many tools run at the same time; the rest of a batch waits its turn.
    pub max_concurrent_tools: u32,
    /// How often the same batch may be asked for; `None` for ever.
    pub max_repeated_batch_steps: Option<u32>,
    /// How often the same batch may be asked for while it makes progress: its tools only look
    /// around, or its results change. `None` for ever.
    pub max_observation_steps: Option<u32>,
    /// How often the model may say the same text without asking for anything new; `None` for ever.
    pub max_stagnation_steps: Option<u32>,
    /// How often in a row the same call may fail with the same code before it is no longer run;
    /// `None` for ever.
    pub max_repeated_failures: Option<u32>,
    /// How long one tool execution may take, in milliseconds, where the tool does not say.
    pub tool_timeout_ms: u64,
    /// How many bytes of text a tool's output may have before the model reads only its beginning.
    pub max_result_bytes: u64,
    /// How long the memory may take over one read or write, in milliseconds.
    pub memory_timeout_ms: u64,
    /// How long one call of a hook may take, in milliseconds.
    pub hook_timeout_ms: u64,
    /// How long the error store or the result store may take over one call, in milliseconds.
    pub store_timeout_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_iterations: 25,
            max_parallel_tools: 25,
            max_concurrent_tools: 8,
            max_repeated_batch_steps: Some(4),
            max_observation_steps: Some(15),
            max_stagnation_steps: Some(5),
            max_repeated_failures: Some(3),
            tool_timeout_ms: 30_000,
            max_result_bytes: 16 * 1024,
            memory_timeout_ms: 5_000,
            hook_timeout_ms: 5_000,
            store_timeout_ms: 5_000,
        }
    }
}

/// Says why an agent cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DefinitionError {
    /// What should be an amount of money is none.
    #[error("`{key}` must be a finite number that is not negative, and is `{amount}`")]
    #[non_exhaustive]
    NoAmount {
        /// The key.
        key: &'static str,
        /// What it is.
        amount: String,
    },
    /// A setting is beyond what providers take.
    #[error("`{key}` must be from 0 to {max}, and is `{given}`")]
    #[non_exhaustive]
    OutOfRange {
        /// The key.
        key: &'static str,
        /// What it may be at most.
        max: String,
        /// What it is.
        given: String,
    },
    /// A value is nested so deeply that a record of it could not be read.
    #[error("`{0}` is nested deeper than {1} levels")]
    TooDeep(&'static str, usize),
    /// There is a cost budget and no price.
    #[error("`max_cost_usd` needs a price: give `input_per_mtok` and `output_per_mtok`")]
    UnknownPrice,
    /// A limit that must be at least one is zero.
    #[error("`{0}` must be at least 1")]
    ZeroLimit(&'static str),
}

impl DefinitionError {
    /// Says that answers cannot vary so much.
    #[must_use]
    pub fn temperature(given: f32, max: f32) -> Self {
        Self::OutOfRange { key: "temperature", max: max.to_string(), given: given.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Spec: D2. A record has to be read again, whatever stands in it.
    #[test]
    fn schema_too_deep_for_a_record_is_refused() {
        let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!({ "not": inner }));
        let check = |schema: Value| {
            let mut definition = AgentDefinition::new("a", "");
            definition.output_schema = Some(JsonText::of(&schema).unwrap());
            definition.validate().map_err(|error| error.to_string())
        };
        assert_eq!(check(nested(MAX_SCHEMA_DEPTH)), Ok(()));
        assert_eq!(check(json!({ "const": "[".repeat(MAX_SCHEMA_DEPTH + 1) })), Ok(()));
        let why = check(nested(MAX_SCHEMA_DEPTH + 1)).unwrap_err();
        assert!(why.contains("output_schema"), "{why}");
    }
}
