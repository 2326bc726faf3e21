//! A run written as data.

use std::path::Path;

use backstop_provider::ScriptedAnswer;
use layer0::Approvers;
use layer0::stop::Outcome;
use layer0::usage::BudgetIncrease;
use serde::Deserialize;
use serde::de::{Deserializer, Error};
use serde_json::Value;

use crate::ConfigError;
use crate::agent_table::AgentTable;
use crate::approvals::check_approvals;
use crate::checked::{approvers, at_least_one, capabilities, object_schema, optional_text};
use crate::exact::check_values;
use crate::names::check_names;
use crate::operator_table::{OperatorTable, check_operators};
use crate::parse::parse;
use crate::read::read_text;
use crate::scripted_hook::{ScriptedDecision, ScriptedHook};
use crate::signal_table::{SignalTable, check_signals};
use crate::tables::check_scenario_tables;

/// A scenario file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Scenario {
    /// What it shows.
    pub name: String,
    /// What the agent is asked.
    pub input: String,
    /// The operator that is asked instead of the scenario's own agent.
    pub entry: Option<String>,
    /// The session.
    #[serde(default, deserialize_with = "optional_text")]
    pub session: Option<String>,
    /// When the run is cancelled, in milliseconds from its start.
    pub cancel_at_ms: Option<u64>,
    /// What the agent is.
    #[serde(default)]
    pub agent: AgentTable,
    /// What the model does, one entry per attempt.
    #[serde(default)]
    pub model: Vec<ScriptedAnswer>,
    /// What the tools do.
    #[serde(default)]
    pub tools: Vec<ScriptedTool>,
    /// What is remembered, and how remembering fails.
    pub memory: Option<MemoryTable>,
    /// What other people's code does at points of the run.
    #[serde(default)]
    pub hooks: Vec<ScriptedHook>,
    /// Further agents, each a tool of the others.
    #[serde(default)]
    pub operator: Vec<OperatorTable>,
    /// What people decide, in the order they are asked; then there is no one to ask.
    #[serde(default)]
    pub approvals: Vec<ScriptedDecision>,
    /// What is sent to the run while it is at work.
    #[serde(default)]
    pub signals: Vec<SignalTable>,
    /// How the run is opened again after it failed or was stopped, in order.
    #[serde(default)]
    pub reopen: Vec<Reopening>,
    /// How the log fails.
    #[serde(default)]
    pub log: LogFaultTable,
    /// How the error store fails.
    #[serde(default)]
    pub error_store: StoreFaultTable,
    /// How the store of large results fails.
    #[serde(default)]
    pub result_store: StoreFaultTable,
    /// What must come of it.
    #[serde(default)]
    pub expect: Expect,
}

/// `[[reopen]]`: a run that failed or was stopped goes on.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Reopening {
    /// Who opens it.
    #[serde(deserialize_with = "optional_text")]
    pub by: Option<String>,
    /// What is said to the model.
    #[serde(deserialize_with = "optional_text")]
    pub message: Option<String>,
    /// What is added to its budget.
    pub budget: BudgetIncrease,
}

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
    /// Who may decide about a call; anyone otherwise.
    #[serde(default, deserialize_with = "approvers")]
    pub approvers: Approvers,
    /// Does it only look around?
    #[serde(default)]
    pub exploratory: bool,
    /// How long a call may take, in milliseconds.
    #[serde(default, deserialize_with = "at_least_one")]
    pub timeout_ms: Option<u64>,
    /// What its executions come to, in order; the last one repeats.
    #[serde(default)]
    pub calls: Vec<ScriptedCall>,
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

/// What no output of a scripted tool is larger than.
const MAX_OUTPUT_BYTES: usize = 16 * 1024 * 1024;

fn output_bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Option<usize>, D::Error> {
    match usize::deserialize(from)? {
        bytes if bytes <= MAX_OUTPUT_BYTES => Ok(Some(bytes)),
        _ => Err(D::Error::custom(format!("`output_bytes` must be at most {MAX_OUTPUT_BYTES}"))),
    }
}

/// `[memory]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct MemoryTable {
    /// What every read returns.
    pub entries: Vec<String>,
    /// The text a read fails with.
    pub read_error: Option<String>,
    /// The text a read panics with.
    pub read_panic: Option<String>,
    /// How long a read hangs first, in milliseconds.
    pub read_hang_ms: Option<u64>,
    /// The text a write fails with.
    pub write_error: Option<String>,
    /// The text a write panics with.
    pub write_panic: Option<String>,
    /// How long a write hangs first, in milliseconds.
    pub write_hang_ms: Option<u64>,
}

/// `[log]`.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct LogFaultTable {
    /// The append that would write this seq fails, and all after it.
    pub fail_at_seq: Option<u64>,
}

/// `[error_store]` and `[result_store]`.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct StoreFaultTable {
    /// How it fails; it works otherwise.
    pub fail: Option<StoreFault>,
    /// How often it is locked before it works; for ever otherwise.
    pub locked_times: Option<u32>,
}

/// How a store fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StoreFault {
    /// It was closed.
    Closed,
    /// The disk is full.
    DiskFull,
    /// Another process holds the lock.
    Locked,
    /// There is none.
    None,
}

/// What must come of a scenario; what is not given is not checked.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Expect {
    /// How the run ends.
    pub outcome: Option<Outcome>,
    /// The code of the failure or stop.
    pub reason: Option<String>,
    /// What the run says.
    pub output: Option<String>,
    /// The types of its events; `…` stands for any number of them.
    pub events: Option<Vec<String>>,
}

impl Scenario {
    /// Reads a scenario file.
    ///
    /// # Errors
    ///
    /// [`ConfigError`], naming file, line and how to mend it.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = read_text(path)?;
        check_scenario_tables(path, &text)?;
        let scenario: Self = parse(path, &text)?;
        check_values(path, &text)?;
        check_names(path, &text)?;
        check_approvals(path, &text)?;
        check_operators(path, &text, &scenario.operator)?;
        check_signals(path, &text)?;
        let senseless = |table: StoreFaultTable| {
            table.locked_times.is_some() && table.fail != Some(StoreFault::Locked)
        };
        if senseless(scenario.error_store) || senseless(scenario.result_store) {
            return Err(ConfigError::new(path, "`locked_times` goes with `fail = \"locked\"`"));
        }
        Ok(scenario)
    }
}
