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
    /// Its name.
    pub name: String,
    /// Where it is called.
    pub point: HookPoint,
    /// The only tool it is called for, around tools.
    pub tool: Option<String>,
    /// What it does.
    pub action: HookAction,
    /// Does the run go on when it fails?
    #[serde(default = "yes")]
    pub fail_open: bool,
}

const fn yes() -> bool {
    true
}

/// What a scripted hook does.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HookAction {
    /// Says no, for this reason.
    Abort(String),
    /// Lets the run go on.
    Continue,
    /// Fails with this text.
    Error(String),
    /// Hangs this long, in milliseconds, then lets the run go on.
    HangMs(u64),
    /// Panics with this text.
    Panic(String),
    /// Gives a tool other arguments.
    ReplaceArguments(Value),
}

/// What a person decides about an approval.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ScriptedDecision {
    /// Yes or no.
    pub verdict: ApprovalVerdict,
    /// Who.
    #[serde(default = "default_person", deserialize_with = "text")]
    pub by: String,
    /// Why.
    pub reason: Option<String>,
    /// What the call gets instead of the arguments that were shown; of one that is approved.
    pub arguments: Option<Value>,
    /// The data that the approval asks for; of one that is approved.
    pub data: Option<Value>,
    /// How long it takes to decide, in milliseconds; no time otherwise.
    pub delay_ms: Option<u64>,
}

fn default_person() -> String {
    "rehearsal".to_owned()
}

/// Yes or no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalVerdict {
    /// The call may run.
    Approve,
    /// It may not.
    Deny,
}
