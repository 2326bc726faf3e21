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
    /// Name of the tool.
    pub name: String,
    /// Description for the model.
    pub description: Option<String>,
    /// JSON Schema of the arguments.
    #[serde(default, deserialize_with = "object_schema")]
    pub schema: Option<Value>,
    /// JSON Schema of the output.
    pub output_schema: Option<Value>,
    /// Capabilities that the tool needs.
    #[serde(default, deserialize_with = "capabilities")]
    pub capabilities: Vec<String>,
    /// Whether a call may be repeated.
    #[serde(default)]
    pub idempotent: bool,
    /// Whether a person must approve each call.
    #[serde(default)]
    pub approval: bool,
    /// Time limit for the decision about a call, in milliseconds; unlimited by default.
    #[serde(default, deserialize_with = "at_least_one")]
    pub expires_after_ms: Option<u64>,
    /// People who may decide about a call; any person by default.
    #[serde(default, deserialize_with = "approvers")]
    pub approvers: Approvers,
    /// JSON Schema of the data that each approval asks for.
    pub approval_schema: Option<Value>,
    /// Whether the tool only reads, without effects.
    #[serde(default)]
    pub exploratory: bool,
    /// Result of the probe of a call of unknown outcome; without it the tool has no probe.
    pub probe: Option<ProbeVerdict>,
    /// Output of a call that happened, according to the probe.
    pub probe_output: Option<Value>,
    /// Whether a call that did not happen by the time of the probe never will.
    #[serde(default)]
    pub probe_is_final: bool,
    /// Timeout of a call, in milliseconds.
    #[serde(default, deserialize_with = "at_least_one")]
    pub timeout_ms: Option<u64>,
    /// Results of its executions, in order; the last one repeats.
    #[serde(default)]
    pub calls: Vec<ScriptedCall>,
}

/// The result of a probe about a call of unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProbeVerdict {
    /// The call did not happen.
    DidNot,
    /// The call happened.
    Happened,
    /// The outcome stays unknown.
    Unknown,
}

/// The result of one execution of a scripted tool.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ScriptedCall {
    /// Returned output.
    pub output: Option<Value>,
    /// Text of the error.
    pub error: Option<String>,
    /// Author's code of the failure.
    pub code: Option<String>,
    /// Text of the panic.
    pub panic: Option<String>,
    /// Question to a person before the result; without an own output the tool returns the person's answer.
    pub ask: Option<ScriptedAsk>,
    /// Delay at the start, in milliseconds.
    pub hang_ms: Option<u64>,
    /// Size of a text that the tool returns, in bytes, at most 16 MiB.
    #[serde(deserialize_with = "output_bytes")]
    pub output_bytes: Option<usize>,
    /// Whether a retry can help.
    pub retryable: bool,
    /// Delay before a retry, in milliseconds.
    pub retry_after_ms: Option<u64>,
}

/// A question of a running scripted tool to a person.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ScriptedAsk {
    /// Text of the question.
    pub message: String,
    /// JSON Schema of the answer.
    #[serde(default, deserialize_with = "object_schema")]
    pub schema: Option<Value>,
}

/// Largest size of a scripted output, in bytes.
const MAX_OUTPUT_BYTES: usize = 16 * 1024 * 1024;

fn output_bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Option<usize>, D::Error> {
    match usize::deserialize(from)? {
        bytes if bytes <= MAX_OUTPUT_BYTES => Ok(Some(bytes)),
        _ => Err(D::Error::custom(format!("`output_bytes` must be at most {MAX_OUTPUT_BYTES}"))),
    }
}
