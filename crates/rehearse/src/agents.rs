//! Agents as a scenario describes them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, VirtualClock};
use backstop_config::{
    AgentTable, MemoryTable, OperatorTable, Scenario, ScriptedHook, ScriptedTool,
};
use backstop_error_store::{ErrorStore, ResultStore};
use backstop_event_log::EventLog;
use backstop_provider::{Provider, ScriptedAnswer, ScriptedProvider};
use backstop_react::{Agent, AgentBuilder, OperatorTool, Upstream};
use backstop_retry::Jitter;
use backstop_store_sqlite::Database;
use layer0::error::BoxError;
use tokio::runtime::Handle;

use crate::approvals::ScriptedApprover;
use crate::faults::{FaultyErrorStore, FaultyLog, FaultyResultStore};
use crate::hooks::ScriptedGate;
use crate::leftovers::ToolCalls;
use crate::marks::{Marks, ReachMark};
use crate::memory::{MemoryMarks, ScriptedMemory};
use crate::model::{NotingProvider, Requests};
use crate::tools::Scripted;
use crate::waited::Waited;

/// Parts that all agents of a scenario share.
pub(crate) struct ScenarioParts {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) log: Arc<dyn EventLog>,
    /// The error store without its faults, for the report.
    pub(crate) errors: Arc<dyn ErrorStore>,
    faulty_errors: Option<Arc<dyn ErrorStore>>,
    results: Option<Arc<dyn ResultStore>>,
    approver: Option<ScriptedApprover>,
    /// Seed of the jitter, derived from the scenario's name, so that each rehearsal waits the same times.
    seed: u64,
    /// Names of the operators that agents can call.
    operators: Vec<Arc<str>>,
    file: PathBuf,
    /// The parts of the scenario that a run has to reach.
    pub(crate) marks: Marks,
}

/// An agent of a scenario, with the script of each of its runs.
pub(crate) struct AgentScript {
    name: Arc<str>,
    agent: AgentTable,
    model: Arc<[ScriptedAnswer]>,
    tools: Vec<ScriptedTool>,
    memory: Option<(MemoryTable, MemoryMarks)>,
    hooks: Vec<(ScriptedHook, ReachMark)>,
}

impl AgentScript {
    /// Returns the scenario's own agent.
    pub(crate) fn own(scenario: &Scenario, marks: &Marks) -> Self {
        Self {
            name: scenario.agent.name.as_deref().unwrap_or("scenario").into(),
            agent: scenario.agent.clone(),
            model: scenario.model.as_slice().into(),
            tools: scenario.tools.clone(),
            memory: marked_memory(scenario.memory.as_ref(), "", marks),
            hooks: marked_hooks(&scenario.hooks, "", marks),
        }
    }

    /// Returns the agent of an operator.
    pub(crate) fn from_operator(operator: &OperatorTable, marks: &Marks) -> Self {
        let owner = format!(" of `{}`", operator.name);
        Self {
            name: operator.name.as_str().into(),
            agent: operator.agent.clone(),
            model: operator.model.as_slice().into(),
            tools: operator.tools.clone(),
            memory: marked_memory(operator.memory.as_ref(), &owner, marks),
            hooks: marked_hooks(&operator.hooks, &owner, marks),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of answers that the model has for each run.
    pub(crate) fn answers(&self) -> usize {
        self.model.len()
    }

    pub(crate) fn max_park(&self) -> Option<Duration> {
        self.agent.max_park()
    }
}

/// Adds the faults of a memory to the parts that a run has to reach.
fn marked_memory(
    table: Option<&MemoryTable>,
    owner: &str,
    marks: &Marks,
) -> Option<(MemoryTable, MemoryMarks)> {
    table.map(|table| (table.clone(), MemoryMarks::add(table, owner, marks)))
}

/// Adds hooks to the parts that a run has to reach.
fn marked_hooks(
    hooks: &[ScriptedHook],
    owner: &str,
    marks: &Marks,
) -> Vec<(ScriptedHook, ReachMark)> {
    let marked =
        |hook: &ScriptedHook| (hook.clone(), marks.add(format!("hook `{}`{owner}", hook.name)));
    hooks.iter().map(marked).collect()
}

impl ScenarioParts {
    pub(crate) fn new(
        scenario: &Scenario,
        file: &Path,
        (database, store): (&Database, &Handle),
        clock: &VirtualClock,
    ) -> Self {
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let log: Arc<dyn EventLog> = Arc::new(database.log());
        let log: Arc<dyn EventLog> = Arc::new(Waited::new(log, store.clone()));
        let errors: Arc<dyn ErrorStore> = Arc::new(database.errors());
        let errors: Arc<dyn ErrorStore> = Arc::new(Waited::new(errors, store.clone()));
        let results: Arc<dyn ResultStore> = Arc::new(database.results());
        let results: Arc<dyn ResultStore> = Arc::new(Waited::new(results, store.clone()));
        let marks = Marks::default();
        let is_asked = !scenario.approvals.is_empty();
        let approver = is_asked
            .then(|| ScriptedApprover::new(&scenario.approvals, &marks, Arc::clone(&shared)));
        Self {
            clock: shared,
            log: FaultyLog::wrap(log, scenario.log, &marks),
            faulty_errors: FaultyErrorStore::wrap(
                Arc::clone(&errors),
                scenario.error_store,
                &marks,
            ),
            errors,
            results: FaultyResultStore::wrap(results, scenario.result_store, &marks),
            approver,
            seed: seed(&scenario.name),
            operators: scenario.operator.iter().map(|it| it.name.as_str().into()).collect(),
            file: file.to_owned(),
            marks,
        }
    }

    /// Returns the source of the jitter between attempts.
    pub(crate) fn jitter(&self) -> Jitter {
        Jitter::from_seed(self.seed)
    }

    /// Returns the model of one run.
    pub(crate) fn provider(&self, script: &AgentScript, requests: &Requests) -> Arc<dyn Provider> {
        let script = ScriptedProvider::new(Arc::clone(&script.model));
        let script = script.with_clock(Arc::clone(&self.clock));
        Arc::new(NotingProvider { script, requests: requests.clone() })
    }

    /// Builds an agent. Each of its tools starts its script from the beginning.
    pub(crate) fn agent(
        &self,
        script: &AgentScript,
        model: Upstream,
        calls: &ToolCalls,
    ) -> Result<Agent, BoxError> {
        let folder = self.file.parent().unwrap_or(Path::new(""));
        let table = &script.agent;
        let mut agent = AgentBuilder::on(model)
            .name(Arc::clone(&script.name))
            .instructions(table.instructions(&self.file, folder)?)
            .limits(table.limits())
            .budget(table.budget())
            .retry(table.retry())
            .jitter(self.jitter())
            .clock(Arc::clone(&self.clock))
            .shared_log(Arc::clone(&self.log));
        if let Some(price) = table.price() {
            agent = agent.price(price);
        }
        if let Some(schema) = &table.input_schema {
            agent = agent.input_schema(schema.clone());
        }
        if let Some(schema) = &table.output_schema {
            agent = agent.output_schema(schema.clone());
        }
        for name in &table.limits.exploratory_tools {
            agent = agent.exploratory_tool(name.as_str());
        }
        for grant in table.grants(folder) {
            agent = agent.grant(grant);
        }
        for tool in &script.tools {
            let made = calls.of_tool(tool);
            agent = agent.tool(Scripted::new(tool, made, folder, Arc::clone(&self.clock)));
        }
        for operator in self.operators.iter().filter(|operator| **operator != script.name) {
            agent = agent.tool(OperatorTool::new(Arc::clone(operator), "A scripted operator."));
        }
        if let Some((table, marks)) = &script.memory {
            let (table, marks) = (table.clone(), marks.clone());
            agent = agent.memory(ScriptedMemory { table, marks, clock: Arc::clone(&self.clock) });
        }
        for (hook, mark) in &script.hooks {
            let clock = Arc::clone(&self.clock);
            agent = agent.gate(ScriptedGate::new(hook.clone(), mark.clone(), clock));
        }
        if let Some(approver) = &self.approver {
            agent = agent.approver(approver.clone());
        }
        agent = match &self.results {
            Some(results) => agent.shared_result_store(Arc::clone(results)),
            None => agent.without_result_store(),
        };
        agent = match &self.faulty_errors {
            Some(errors) => agent.shared_error_store(Arc::clone(errors)),
            None => agent.without_error_store(),
        };
        agent.build().map_err(Into::into)
    }
}

/// Returns FNV-1a 64 of a scenario's name.
fn seed(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
