//! `[[operator]]` of a scenario.

use std::ops::Range;
use std::path::Path;

use backstop_provider::ScriptedAnswer;
use layer0::name::{check_name, wire_name};
use serde::Deserialize;
use toml::Spanned;

use crate::ConfigError;
use crate::agent_table::AgentTable;
use crate::fault_tables::MemoryTable;
use crate::hints::nearest;
use crate::line::line_number;
use crate::parse::parse;
use crate::scripted_hook::ScriptedHook;
use crate::scripted_tool::ScriptedTool;
use crate::workflow_table::{FailurePolicy, RestartRule, WorkflowKind, check_workflows};

/// An agent or a workflow that agents of the scenario call as a tool of its name.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct OperatorTable {
    /// Name of the operator, and of the tool that calls it.
    pub name: String,
    /// The agent.
    #[serde(default)]
    pub agent: AgentTable,
    /// Responses of its model in each run, one entry per attempt.
    #[serde(default)]
    pub model: Vec<ScriptedAnswer>,
    /// Its tools in each run.
    #[serde(default)]
    pub tools: Vec<ScriptedTool>,
    /// Memory of the operator, with its faults.
    pub memory: Option<MemoryTable>,
    /// Hooks at points of its runs.
    #[serde(default)]
    pub hooks: Vec<ScriptedHook>,
    /// Kind of the workflow; absent for an agent.
    pub kind: Option<WorkflowKind>,
    /// The operators that a workflow dispatches.
    #[serde(default)]
    pub steps: Vec<String>,
    /// Limit of concurrent steps; of a supervised step, the limit of restarts.
    pub limit: Option<u32>,
    /// Reaction of the other steps to the failure of one.
    pub policy: Option<FailurePolicy>,
    /// Condition for the restart of a supervised step.
    pub restart: Option<RestartRule>,
}

/// The names of a file that must differ from each other.
#[derive(Default, Deserialize)]
#[serde(default)]
struct OperatorNames {
    entry: Option<Spanned<String>>,
    agent: AgentName,
    tools: Vec<NamedOperator>,
    operator: Vec<DeclaredOperator>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AgentName {
    name: Option<Spanned<String>>,
}

#[derive(Deserialize)]
struct NamedOperator {
    name: Spanned<String>,
}

#[derive(Deserialize)]
struct DeclaredOperator {
    name: Spanned<String>,
    #[serde(default)]
    agent: AgentName,
    #[serde(default)]
    tools: Vec<NamedOperator>,
}

/// A name that is in use, with its owner.
struct UsedName<'t> {
    kind: &'static str,
    name: &'t str,
    at: Range<usize>,
}

impl<'t> UsedName<'t> {
    fn new(kind: &'static str, name: &'t Spanned<String>) -> Self {
        Self { kind, name: name.as_ref(), at: name.span() }
    }
}

/// Refuses operators that have the name of another one or of a tool, incomplete workflows, and an entry that names no
/// operator.
pub(crate) fn check_operators(path: &Path, text: &str) -> Result<(), ConfigError> {
    let OperatorNames { entry, agent, tools, operator } = parse(path, text)?;
    for DeclaredOperator { name, agent, .. } in &operator {
        let refused = |what: String| ConfigError::new(path, what).in_text(text, name.span());
        check_name(name.as_ref()).map_err(|error| refused(format!("operator: {error}")))?;
        if let Some(other) = agent.name.as_ref().filter(|other| other.as_ref() != name.as_ref()) {
            let what = format!(
                "`name`: the agent of operator `{}` cannot be named `{}`",
                name.as_ref(),
                other.as_ref()
            );
            let error = ConfigError::new(path, what).in_text(text, other.span());
            return Err(error.with_hint("take it out; an operator has the name it is called by"));
        }
    }
    let own_name = agent.name.as_ref();
    let own = own_name.into_iter().map(|name| UsedName::new("agent", name));
    let all_tools = tools.iter().chain(operator.iter().flat_map(|operator| &operator.tools));
    let others = all_tools.map(|tool| UsedName::new("tool", &tool.name));
    let mut taken: Vec<_> = own.chain(others).collect();
    for DeclaredOperator { name, .. } in &operator {
        let this = UsedName::new("operator", name);
        let same = |other: &&UsedName<'_>| wire_name(other.name) == wire_name(this.name);
        if let Some(other) = taken.iter().find(same) {
            return Err(clash(path, text, &this, other));
        }
        taken.push(this);
    }
    check_workflows(path, text)?;
    let Some(entry) = entry else { return Ok(()) };
    let mut known: Vec<&str> = operator.iter().map(|it| it.name.as_ref().as_str()).collect();
    known.extend(own_name.map(|name| name.as_ref().as_str()));
    if known.contains(&entry.as_ref().as_str()) {
        return Ok(());
    }
    let what = format!("`entry`: there is no operator named `{}`", entry.as_ref());
    let error = ConfigError::new(path, what).in_text(text, entry.span());
    let hint = nearest(entry.as_ref(), &known);
    let add = || "add an `[[operator]]` of this name, or take `entry` out".to_owned();
    Err(error.with_hint(hint.unwrap_or_else(add)))
}

/// Returns the error for two owners of one name, at the later place.
fn clash(path: &Path, text: &str, this: &UsedName<'_>, other: &UsedName<'_>) -> ConfigError {
    let (earlier, later) =
        if this.at.start < other.at.start { (this, other) } else { (other, this) };
    let line = line_number(text, &earlier.at);
    let what = match earlier.name == later.name {
        true => {
            let article = if earlier.kind == "tool" { "a" } else { "an" };
            format!(
                "there is already {article} {} named `{}`, in line {line}",
                earlier.kind, later.name
            )
        }
        false => format!(
            "{} `{}` and {} `{}`, in line {line}, are both `{}` to a provider",
            later.kind,
            later.name,
            earlier.kind,
            earlier.name,
            wire_name(later.name)
        ),
    };
    let error = ConfigError::new(path, what).in_text(text, later.at.clone());
    error.with_hint("give it another name: agents call an operator as a tool of its name")
}
