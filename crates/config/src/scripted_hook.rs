//! `[[hooks]]` and `[[approvals]]` of a scenario.

use backstop_react_machine::HookPoint;
use serde::Deserialize;
use serde_json::Value;

use crate::checked::text;

/// A scripted hook.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ScriptedHook {
    /// Name of the hook.
    pub name: String,
    /// Point at which the hook is called.
    pub point: HookPoint,
    /// Tool to which the hook is restricted, at points around tools.
    pub tool: Option<String>,
    /// Action of the hook.
    pub action: HookAction,
    /// Whether the run continues after a failure of the hook.
    #[serde(default = "yes")]
    pub fail_open: bool,
}

const fn yes() -> bool {
    true
}

/// The action of a scripted hook.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HookAction {
    /// Refuses, with this reason.
    Abort(String),
    /// Lets the run continue.
    Continue,
    /// Fails with this text.
    Error(String),
    /// Waits this long, in milliseconds, then lets the run continue.
    HangMs(u64),
    /// Panics with this text.
    Panic(String),
    /// Replaces the arguments of a tool call.
    ReplaceArguments(Value),
}

/// The decision of a person about an approval.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ScriptedDecision {
    /// The verdict.
    pub verdict: ApprovalVerdict,
    /// Name of the person.
    #[serde(default = "default_person", deserialize_with = "text")]
    pub by: String,
    /// Reason for the decision.
    pub reason: Option<String>,
    /// Arguments of the call in place of the shown ones; only with an approval.
    pub arguments: Option<Value>,
    /// Data that the approval asks for; only with an approval.
    pub data: Option<Value>,
    /// Time that the decision takes, in milliseconds; none by default.
    pub delay_ms: Option<u64>,
}

fn default_person() -> String {
    "rehearsal".to_owned()
}

/// The verdict of a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalVerdict {
    /// The call may run.
    Approve,
    /// The call may not run.
    Deny,
}
