//! `[[tools]]` of a scenario.

use layer0::Approvers;
use serde::Deserialize;
use serde::de::{Deserializer, Error};
use serde_json::Value;

use crate::checked::{approvers, at_least_one, capabilities, object_schema};

/// A scripted tool.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ScriptedTool {
    /// Its name.
    pub name: String,
    /// What the model is told of it.
    pub description: Option<String>,
    /// JSON Schema of the arguments.
    #[serde(default, deserialize_with = "object_schema")]
    pub schema: Option<Value>,
    /// JSON Schema of the output.
    pub output_schema: Option<Value>,
    /// What it needs.
    #[serde(default, deserialize_with = "capabilities")]
    pub capabilities: Vec<String>,
    /// May a call be repeated?
    #[serde(default)]
    pub idempotent: bool,
    /// Must a person agree to each call?
    #[serde(default)]
    pub approval: bool,
    /// How long there is to decide about a call, in milliseconds; for ever otherwise.
    #[serde(default, deserialize_with = "at_least_one")]
    pub expires_after_ms: Option<u64>,
    /// Who may decide about a call; any person by default.
    #[serde(default, deserialize_with = "approvers")]
    pub approvers: Approvers,
    /// JSON Schema of the data that each approval asks for.
    pub approval_schema: Option<Value>,
    /// Does it only look around?
    #[serde(default)]
    pub exploratory: bool,
    /// What it says of a call of unknown outcome; without it, it cannot be asked.
    pub probe: Option<ProbeVerdict>,
    /// What a call that happened answered.
    pub probe_output: Option<Value>,
    /// Will a call that did not happen then never happen?
    #[serde(default)]
    pub probe_is_final: bool,
    /// How long a call may take, in milliseconds.
    #[serde(default, deserialize_with = "at_least_one")]
    pub timeout_ms: Option<u64>,
    /// What its executions come to, in order; the last one repeats.
    #[serde(default)]
    pub calls: Vec<ScriptedCall>,
}

/// What a scripted tool says of a call of unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProbeVerdict {
    /// It did not happen.
    DidNot,
    /// It happened.
    Happened,
    /// It cannot be said.
    Unknown,
}

/// What one execution of a scripted tool comes to.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ScriptedCall {
    /// What it returns.
    pub output: Option<Value>,
    /// The text it fails with.
    pub error: Option<String>,
    /// The author's code of the failure.
    pub code: Option<String>,
    /// The text it panics with.
    pub panic: Option<String>,
    /// What it asks a person first; without an output of its own it returns what the person gave.
    pub ask: Option<ScriptedAsk>,
    /// How long it hangs first, in milliseconds.
    pub hang_ms: Option<u64>,
    /// How many bytes of text it returns, at most 16 MiB.
    #[serde(deserialize_with = "output_bytes")]
    pub output_bytes: Option<usize>,
    /// Can trying again help?
    pub retryable: bool,
    /// How long to wait before that, in milliseconds.
    pub retry_after_ms: Option<u64>,
}

/// What a scripted tool asks a person while it is running.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ScriptedAsk {
    /// In its words.
    pub message: String,
    /// JSON Schema of the data.
    #[serde(default, deserialize_with = "object_schema")]
    pub schema: Option<Value>,
}

/// What no output of a scripted tool is larger than.
const MAX_OUTPUT_BYTES: usize = 16 * 1024 * 1024;

fn output_bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Option<usize>, D::Error> {
    match usize::deserialize(from)? {
        bytes if bytes <= MAX_OUTPUT_BYTES => Ok(Some(bytes)),
        _ => Err(D::Error::custom(format!("`output_bytes` must be at most {MAX_OUTPUT_BYTES}"))),
    }
}
