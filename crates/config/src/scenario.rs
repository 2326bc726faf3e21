//! Scenarios: runs written as data.

use std::path::Path;

use backstop_provider::ScriptedAnswer;
use layer0::stop::Outcome;
use layer0::usage::BudgetIncrease;
use serde::Deserialize;

use crate::ConfigError;
use crate::agent_table::AgentTable;
use crate::approvals::check_approvals;
use crate::checked::{optional_text, session};
use crate::exact::check_values;
use crate::fault_tables::{LogFaultTable, MemoryTable, StoreFault, StoreFaultTable};
use crate::names::check_names;
use crate::operator_table::{OperatorTable, check_operators};
use crate::parse::parse;
use crate::probes::check_probes;
use crate::read::read_text;
use crate::scripted_hook::{ScriptedDecision, ScriptedHook};
use crate::scripted_names::check_scripted_names;
use crate::scripted_tool::ScriptedTool;
use crate::signal_table::{SignalTable, check_signals};
use crate::tables::check_scenario_tables;

/// A scenario file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Scenario {
    /// Purpose of the scenario.
    pub name: String,
    /// Input of the run.
    pub input: String,
    /// Operator that gets the input in place of the scenario's own agent.
    pub entry: Option<String>,
    /// Name of the session.
    #[serde(default, deserialize_with = "session")]
    pub session: Option<String>,
    /// Time of a cancellation, in milliseconds from the start of the run.
    pub cancel_at_ms: Option<u64>,
    /// The agent.
    #[serde(default)]
    pub agent: AgentTable,
    /// Responses of the model, one entry per attempt.
    #[serde(default)]
    pub model: Vec<ScriptedAnswer>,
    /// The tools.
    #[serde(default)]
    pub tools: Vec<ScriptedTool>,
    /// Memory of the agent, with its faults.
    pub memory: Option<MemoryTable>,
    /// Hooks at points of the run.
    #[serde(default)]
    pub hooks: Vec<ScriptedHook>,
    /// Additional agents and workflows, each a tool of the others.
    #[serde(default)]
    pub operator: Vec<OperatorTable>,
    /// Decisions of people, in the order of the approvals; further approvals stay open.
    #[serde(default)]
    pub approvals: Vec<ScriptedDecision>,
    /// Signals to the running run.
    #[serde(default)]
    pub signals: Vec<SignalTable>,
    /// Reopenings of the run after a failure or a stop, in order.
    #[serde(default)]
    pub reopen: Vec<Reopening>,
    /// Faults of the log.
    #[serde(default)]
    pub log: LogFaultTable,
    /// Faults of the error store.
    #[serde(default)]
    pub error_store: StoreFaultTable,
    /// Faults of the store of large results.
    #[serde(default)]
    pub result_store: StoreFaultTable,
    /// Whether the run may leave faults, signals, decisions and hooks unused; otherwise the scenario fails.
    pub unused: Option<Unused>,
    /// Expected result.
    #[serde(default)]
    pub expect: Expect,
}

/// The rule for parts of a scenario that its run does not reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Unused {
    /// Unused parts are listed, and the scenario may pass.
    Allowed,
}

/// `[[reopen]]`: reopens a run that failed or was stopped.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Reopening {
    /// Person who reopens the run.
    #[serde(deserialize_with = "optional_text")]
    pub by: Option<String>,
    /// Message to the model.
    #[serde(deserialize_with = "optional_text")]
    pub message: Option<String>,
    /// Addition to the budget.
    pub budget: BudgetIncrease,
}

/// The expected result of a scenario; an absent field is not checked.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Expect {
    /// Outcome of the run.
    pub outcome: Option<Outcome>,
    /// Code of the failure or stop.
    pub reason: Option<String>,
    /// Output of the run.
    pub output: Option<String>,
    /// Types of its events; `…` matches any number of events.
    pub events: Option<Vec<String>>,
}

impl Scenario {
    /// Reads a scenario file.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] with file, line and a hint.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = read_text(path)?;
        check_scenario_tables(path, &text)?;
        let scenario: Self = parse(path, &text)?;
        check_values(path, &text)?;
        check_names(path, &text)?;
        check_approvals(path, &text)?;
        check_probes(path, &text)?;
        check_operators(path, &text)?;
        check_signals(path, &text)?;
        check_scripted_names(path, &text)?;
        let senseless = |table: StoreFaultTable| {
            table.locked_times.is_some() && table.fail != Some(StoreFault::Locked)
        };
        if senseless(scenario.error_store) || senseless(scenario.result_store) {
            return Err(ConfigError::goes_with(path, "locked_times", "fail = \"locked\""));
        }
        Ok(scenario)
    }
}
