//! The part of an agent that decides what the machine does.

use std::sync::Arc;

use layer0::{JsonText, ToolSpec};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use crate::budget::{Budget, Price};
use crate::hooks::HookRecord;

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
    pub output_schema: Option<Arc<Value>>,
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
    ///
    /// # Errors
    ///
    /// [`DefinitionError::ZeroLimit`].
    pub fn validate(&self) -> Result<(), DefinitionError> {
        if self.limits.max_iterations == 0 {
            return Err(DefinitionError::ZeroLimit("max_iterations"));
        }
        if self.limits.max_concurrent_tools == 0 {
            return Err(DefinitionError::ZeroLimit("max_concurrent_tools"));
        }
        if self.budget.max_cost_usd.is_some() && self.price.is_none() {
            return Err(DefinitionError::UnknownPrice);
        }
        if self.limits.max_repeated_failures == Some(0) {
            return Err(DefinitionError::ZeroLimit("max_repeated_failures"));
        }
        Ok(())
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
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_iterations: 25,
            max_parallel_tools: 25,
            max_concurrent_tools: 8,
            max_repeated_batch_steps: Some(2),
            max_observation_steps: Some(15),
            max_stagnation_steps: Some(5),
            max_repeated_failures: Some(3),
            tool_timeout_ms: 30_000,
            max_result_bytes: 16 * 1024,
            memory_timeout_ms: 5_000,
            hook_timeout_ms: 5_000,
        }
    }
}

/// Says why an agent cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DefinitionError {
    /// There is a cost budget and no price.
    #[error("`max_cost_usd` needs a price: give `input_per_mtok` and `output_per_mtok`")]
    UnknownPrice,
    /// A limit that must be at least one is zero.
    #[error("`{0}` must be at least 1")]
    ZeroLimit(&'static str),
}
