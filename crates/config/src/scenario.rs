//! A run written as data.

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
    /// What it shows.
    pub name: String,
    /// What the agent is asked.
    pub input: String,
    /// The operator that is asked instead of the scenario's own agent.
    pub entry: Option<String>,
    /// The session.
    #[serde(default, deserialize_with = "session")]
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
    /// What people decide, in the order they are asked; further approvals stay open.
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
    /// Whether faults, signals, decisions and hooks may be left out by the run; it fails the scenario otherwise.
    pub unused: Option<Unused>,
    /// What must come of it.
    #[serde(default)]
    pub expect: Expect,
}

/// The rule for parts of a scenario that its run does not reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Unused {
    /// They are listed, and the scenario may pass.
    Allowed,
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
