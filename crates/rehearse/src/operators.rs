//! Operators as a scenario describes them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use backstop_config::{FailurePolicy, OperatorTable, RestartRule, Scenario, WorkflowKind};
use backstop_orchestrator::{
    LocalOrchestrator, Map, OnFailure, Parallel, Restart, Route, Sequence, Supervise, Workflow,
};
use backstop_react::{Agent, Upstream};
use layer0::Operator;
use layer0::error::{BoxError, OperatorError};
use layer0::id::RunId;
use layer0::operator::{Answer, Context, Task};

use crate::agents::{AgentScript, ScenarioParts};
use crate::leftovers::{ToolCalls, answers_left};
use crate::model::Requests;

/// An agent whose script starts from the beginning in every run; a resumed or reopened run continues its script.
pub(crate) struct ScriptedOperator {
    script: AgentScript,
    shared: Arc<ScenarioParts>,
    /// Retry budget and circuit breaker of its model, shared by all runs.
    endpoint: Upstream,
    /// Template of the agent of each run.
    model: Agent,
    runs: Mutex<BTreeMap<RunId, ScriptedRun>>,
}

/// A run of an operator, with the calls of its model and its tools.
struct ScriptedRun {
    agent: Agent,
    requests: Requests,
    calls: ToolCalls,
}

impl ScriptedOperator {
    pub(crate) fn new(script: AgentScript, shared: &Arc<ScenarioParts>) -> Result<Self, BoxError> {
        let provider = shared.provider(&script, &Requests::default());
        let endpoint = Upstream::on_clock(provider, Arc::clone(&shared.clock));
        let model = shared.agent(&script, endpoint.clone(), &ToolCalls::default())?;
        Ok(Self { script, shared: Arc::clone(shared), endpoint, model, runs: Mutex::default() })
    }

    /// Returns the agent of one run.
    pub(crate) fn agent_for_run(&self, run: &RunId) -> Result<Agent, BoxError> {
        let mut runs = self.runs();
        if let Some(known) = runs.get(run) {
            return Ok(known.agent.clone());
        }
        let (requests, calls) = (Requests::default(), ToolCalls::default());
        let provider = self.shared.provider(&self.script, &requests);
        let endpoint = self.endpoint.clone().provider(provider);
        let agent = self.shared.agent(&self.script, endpoint, &calls)?;
        runs.insert(run.clone(), ScriptedRun { agent: agent.clone(), requests, calls });
        Ok(agent)
    }

    /// Returns how long a run of this operator may be parked.
    pub(crate) fn max_park(&self) -> Option<Duration> {
        self.script.max_park()
    }

    /// Returns the model's requests in one run.
    fn find_requests(&self, run: &RunId) -> Option<Requests> {
        self.runs().get(run).map(|run| run.requests.clone())
    }

    /// Returns the answers and calls that its runs did not use, formatted for the report.
    fn leftovers(&self, owner: &str) -> Vec<String> {
        let left = |run: &ScriptedRun| {
            let answers = answers_left(self.script.answers(), run.requests.count(), owner);
            answers.into_iter().chain(run.calls.list_remaining(owner)).collect::<Vec<_>>()
        };
        let runs = self.runs();
        match runs.is_empty() {
            true => answers_left(self.script.answers(), 0, owner).into_iter().collect(),
            false => runs.values().flat_map(left).collect(),
        }
    }

    fn runs(&self) -> MutexGuard<'_, BTreeMap<RunId, ScriptedRun>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Operator for ScriptedOperator {
    fn name(&self) -> &str {
        self.script.name()
    }

    fn is_priced(&self) -> bool {
        self.model.is_priced()
    }

    fn can_go_on(&self) -> bool {
        self.model.can_go_on()
    }

    async fn run(&self, task: Task, context: &Context) -> Result<Answer, OperatorError> {
        let run = context.run.as_ref().ok_or_else(|| OperatorError::Other("no run".into()))?;
        let mut context = context.clone();
        context.max_park = self.max_park().or(context.max_park);
        Operator::run(&self.agent_for_run(run)?, task, &context).await
    }
}

/// The operators of a scenario.
pub(crate) struct Operators {
    own: Arc<ScriptedOperator>,
    called: Vec<Arc<ScriptedOperator>>,
    workflows: Vec<Workflow>,
}

/// The operator that receives the input of a scenario.
pub(crate) enum EntryOperator<'o> {
    Agent(&'o Arc<ScriptedOperator>),
    Workflow(&'o str),
}

/// Builds the workflow of a table.
fn workflow(table: &OperatorTable, kind: WorkflowKind, shared: &ScenarioParts) -> Workflow {
    let (name, steps) = (table.name.as_str(), table.steps.clone());
    let first = || steps.first().cloned().unwrap_or_default();
    let on_failure = match table.policy.unwrap_or_default() {
        FailurePolicy::Collect => OnFailure::Collect,
        _ => OnFailure::FailFast,
    };
    let limit = table.limit.and_then(|limit| usize::try_from(limit).ok());
    let operator: Arc<dyn Operator> = match kind {
        WorkflowKind::Parallel => {
            let parallel = Parallel::new(name, steps).on_failure(on_failure);
            Arc::new(limit.map_or(parallel.clone(), |limit| parallel.limit(limit)))
        }
        WorkflowKind::Route => Arc::new(Route::with(name, first(), steps.iter().skip(1))),
        WorkflowKind::Map => {
            let map = Map::new(name, first()).on_failure(on_failure);
            Arc::new(limit.map_or(map.clone(), |limit| map.limit(limit)))
        }
        WorkflowKind::Supervise => {
            let restart = match table.restart.unwrap_or_default() {
                RestartRule::Never => Restart::Never,
                RestartRule::Always => Restart::Always,
                _ => Restart::Transient,
            };
            let supervise = Supervise::new(name, first(), restart).clock(Arc::clone(&shared.clock));
            Arc::new(table.limit.map_or(supervise.clone(), |limit| supervise.limit(limit)))
        }
        _ => Arc::new(Sequence::new(name, steps)),
    };
    Workflow::from_arc(operator, Arc::clone(&shared.log)).clock(Arc::clone(&shared.clock))
}

impl Operators {
    pub(crate) fn new(scenario: &Scenario, shared: &Arc<ScenarioParts>) -> Result<Self, BoxError> {
        let operator = |script| ScriptedOperator::new(script, shared).map(Arc::new);
        Ok(Self {
            own: operator(AgentScript::own(scenario, &shared.marks))?,
            called: scenario
                .operator
                .iter()
                .filter(|table| table.kind.is_none())
                .map(|table| operator(AgentScript::from_operator(table, &shared.marks)))
                .collect::<Result<_, _>>()?,
            workflows: scenario
                .operator
                .iter()
                .filter_map(|table| Some(workflow(table, table.kind?, shared)))
                .collect(),
        })
    }

    /// Returns the operator that receives the input.
    pub(crate) fn entry(&self, name: Option<&str>) -> EntryOperator<'_> {
        let workflow = self.workflows.iter().find(|it| Some(it.name()) == name);
        if let Some(workflow) = workflow {
            return EntryOperator::Workflow(workflow.name());
        }
        let agent = self.called.iter().find(|it| Some(it.name()) == name);
        EntryOperator::Agent(agent.unwrap_or(&self.own))
    }

    /// Builds the orchestrator that dispatches between the operators.
    pub(crate) fn orchestrator(
        &self,
        shared: &ScenarioParts,
    ) -> Result<LocalOrchestrator, BoxError> {
        let builder = LocalOrchestrator::builder()
            .clock(Arc::clone(&shared.clock))
            .jitter(shared.jitter())
            .shared_log(Arc::clone(&shared.log));
        let builder =
            self.workflows.iter().fold(builder, |builder, it| builder.operator(it.clone()));
        let called = self.called.iter().map(|it| Arc::clone(it) as Arc<dyn Operator>);
        called.fold(builder, |builder, it| builder.shared_operator(it)).build().map_err(Into::into)
    }

    /// Returns the answers and calls that no run used, formatted for the report.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let called = self.called.iter();
        let called = called.flat_map(|it| it.leftovers(&format!(" of `{}`", it.script.name())));
        self.own.leftovers("").into_iter().chain(called).collect()
    }

    /// Returns the model's requests in a run.
    pub(crate) fn find_requests(&self, run: &RunId) -> Requests {
        let mut all = std::iter::once(&self.own).chain(&self.called);
        all.find_map(|operator| operator.find_requests(run)).unwrap_or_default()
    }
}
