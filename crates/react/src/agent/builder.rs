use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_error_store::{ErrorStore, ResultStore, Store};
use backstop_event_log::EventLog;
use backstop_provider::{ModelSettings, Provider};
use backstop_react_machine::{Budget, Limits, Price, SpendLimit};
use backstop_redact::Redactor;
use backstop_retry::{Jitter, RetryConfig};
use backstop_tool::{Tool, ToolSource};
use layer0::{Approvers, StateStore};
use serde_json::Value;

use crate::agent::inner::{ExternalSources, Schemas};
use crate::agent::pack::Pack;
use crate::approval::Approver;
use crate::hook::{Gate, HookCode, Observer};
use crate::memory::Memory;
use crate::recorded_tools::RecordedTools;
use crate::stores::StoreChoice;
use crate::upstream::{AgentProvider, Upstream};

/// Default timeout of one attempt of a model call.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(300);

/// A builder for agents. The defaults are safe: finite limits, tool timeouts, retries with a budget, redaction; nothing
/// is granted to tools. Whole errors and large results are kept in memory, 16 MiB of each, and no log is kept, until a
/// store is given.
#[derive(Clone)]
#[must_use = "an agent is made by `build`"]
pub struct AgentBuilder {
    /// The endpoints of the model, then those of each fallback, in the order of their use; each pool has at least one.
    pub(crate) pools: Vec<Vec<AgentProvider>>,
    pub(crate) name: Arc<str>,
    pub(crate) instructions: Arc<str>,
    pub(crate) schemas: Schemas,
    pub(crate) limits: Limits,
    pub(crate) budget: Budget,
    pub(crate) spend_limits: Vec<SpendLimit>,
    pub(crate) price: Option<Price>,
    pub(crate) exploratory_tools: Vec<String>,
    pub(crate) settings: ModelSettings,
    pub(crate) stream: bool,
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    pub(crate) outside: ExternalSources,
    pub(crate) recorded_tools: Option<RecordedTools>,
    pub(crate) grants: Vec<String>,
    pub(crate) retry: RetryConfig,
    pub(crate) jitter: Jitter,
    pub(crate) attempt_timeout: Duration,
    pub(crate) log: Option<Arc<dyn EventLog>>,
    pub(crate) errors: StoreChoice<dyn ErrorStore>,
    pub(crate) results: StoreChoice<dyn ResultStore>,
    pub(crate) state: Option<Arc<dyn StateStore>>,
    pub(crate) memory: Option<Arc<dyn Memory>>,
    pub(crate) app_state: Option<Arc<dyn Any + Send + Sync>>,
    pub(crate) hooks: Vec<HookCode>,
    pub(crate) approver: Option<Arc<dyn Approver>>,
    pub(crate) approvals: Vec<ApprovalRule>,
    pub(crate) packs: Vec<Pack>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) redactor: Redactor,
    pub(crate) source: Value,
    pub(crate) contract: Option<Value>,
    pub(crate) tool_contracts: Vec<(String, Value)>,
}

impl AgentBuilder {
    /// Returns a builder of an agent around a shared provider.
    pub fn from_shared(provider: Arc<dyn Provider>) -> Self {
        Self::asking(AgentProvider::Alone(provider))
    }

    /// Returns a builder of an agent that shares its provider's retry budget, breaker and permits with others.
    pub fn on(upstream: Upstream) -> Self {
        Self::asking(AgentProvider::Shared(upstream))
    }

    fn asking(model: AgentProvider) -> Self {
        Self {
            pools: vec![vec![model]],
            name: "agent".into(),
            instructions: Arc::default(),
            schemas: Schemas::default(),
            limits: Limits::default(),
            budget: Budget::default(),
            spend_limits: Vec::new(),
            price: None,
            exploratory_tools: Vec::new(),
            settings: ModelSettings::default(),
            stream: true,
            tools: Vec::new(),
            outside: ExternalSources::default(),
            recorded_tools: None,
            grants: Vec::new(),
            retry: RetryConfig::default(),
            jitter: Jitter::Random,
            attempt_timeout: ATTEMPT_TIMEOUT,
            log: None,
            errors: StoreChoice::Default,
            results: StoreChoice::Default,
            state: None,
            memory: None,
            app_state: None,
            hooks: Vec::new(),
            approver: None,
            approvals: Vec::new(),
            packs: Vec::new(),
            clock: Arc::new(SystemClock),
            redactor: Redactor::new(),
            source: Value::Null,
            contract: None,
            tool_contracts: Vec::new(),
        }
    }

    /// Sets the agent's name; the default is `agent`.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the model's instructions.
    pub fn instructions(mut self, instructions: impl Into<Arc<str>>) -> Self {
        self.instructions = instructions.into();
        self
    }

    /// Declares the JSON Schema of the input of a dispatch, with the feature `json-schema`: an input that does not fit
    /// is refused before anything starts. The model reads the input as JSON. A tool made of the agent
    /// ([`Agent::as_tool`](crate::Agent::as_tool)) takes such arguments.
    ///
    /// ```
    /// use backstop_provider::ScriptedProvider;
    /// use backstop_react::Agent;
    /// use serde_json::json;
    ///
    /// let schema = json!({"type": "object", "required": ["invoice"]});
    /// let payer = Agent::builder(ScriptedProvider::saying(["Paid."]));
    /// let payer = payer.name("payer").input_schema(schema).build()?;
    /// # let _ = payer;
    /// # Ok::<(), backstop_react::BuildError>(())
    /// ```
    #[cfg(feature = "json-schema")]
    pub fn input_schema(mut self, schema: Value) -> Self {
        self.schemas.input = Some(Arc::new(schema));
        self
    }

    /// Declares the JSON Schema of the agent's answers, with the feature `json-schema`, for runs that do not set
    /// another one ([`RunRequest::output_schema`](crate::RunRequest::output_schema)). An answer that does not fit is
    /// sent back with the reason once; then the run fails.
    #[cfg(feature = "json-schema")]
    pub fn output_schema(mut self, schema: Value) -> Self {
        self.schemas.output = Some(Arc::new(schema));
        self
    }

    /// Sets the limits of a run.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the budget of a run.
    pub fn budget(mut self, budget: Budget) -> Self {
        self.budget = budget;
        self
    }

    /// Adds a limit for the spending of all runs in a day or a month, by the calendar in UTC. It needs a state store,
    /// which the processes share, and a price for each model. The expected cost of an attempt of a model call is
    /// reserved before the attempt, and replaced by its cost afterwards. When the limit is reached, the run ends as
    /// with an exhausted cost budget, and the reason names the limit. All runs together spend no more than the limit
    /// and one response for each model call in flight. Of two limits for the same scope and period, the lower one
    /// applies.
    ///
    /// ```
    /// use backstop_provider::ScriptedProvider;
    /// use backstop_react::{Agent, LimitPeriod, LimitScope, Price, SpendLimit};
    /// use backstop_state::MemoryStateStore;
    ///
    /// let agent = Agent::builder(ScriptedProvider::saying(["42"]))
    ///     .price(Price::new(3.0, 15.0))
    ///     .state_store(MemoryStateStore::new())
    ///     .spend_limit(SpendLimit::new(LimitScope::Agent, LimitPeriod::Day, 20.0))
    ///     .spend_limit(SpendLimit::new(LimitScope::Label("tenant".into()), LimitPeriod::Month, 50.0))
    ///     .build()?;
    /// # let _ = agent;
    /// # Ok::<(), backstop_react::BuildError>(())
    /// ```
    pub fn spend_limit(mut self, limit: SpendLimit) -> Self {
        self.spend_limits.push(limit);
        self
    }

    /// Sets the price of tokens, so that usage has a cost and a cost budget can be kept.
    pub fn price(mut self, price: Price) -> Self {
        self.price = Some(price);
        self
    }

    /// Treats tools whose name contains this part, in any case, as exploratory: tools that only look around.
    pub fn exploratory_tool(mut self, part_of_name: impl Into<String>) -> Self {
        self.exploratory_tools.push(part_of_name.into());
        self
    }

    /// Sets the model settings. A setting that the provider or a fallback does not have is refused when the agent is
    /// built. A forced tool call ([`ToolChoice::Required`], or a tool by name) applies to the first model call of a
    /// run; after it, the model decides.
    ///
    /// [`ToolChoice::Required`]: backstop_provider::ToolChoice::Required
    pub fn settings(mut self, settings: ModelSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Sets whether answers are streamed (the default) or received whole.
    pub fn stream(mut self, stream: bool) -> Self {
        self.stream = stream;
        self
    }

    /// Adds a tool.
    pub fn tool(self, tool: impl Tool + 'static) -> Self {
        self.shared_tool(Arc::new(tool))
    }

    /// Adds a shared tool.
    pub fn shared_tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.push(tool);
        self
    }

    /// Adds the tools of a source, such as an MCP server. The listing of the source is part of the record of each run,
    /// and later changes to the listing are recorded; neither changes the identity of the agent.
    pub fn tool_source(mut self, source: Arc<dyn ToolSource>) -> Self {
        self.outside.sources.push(source);
        self
    }

    /// Adds a warning to the record of each run, right after its start: for example a setting that a caller could not
    /// enforce.
    pub fn warning(mut self, message: impl Into<Arc<str>>) -> Self {
        self.outside.warnings.push(message.into());
        self
    }

    /// Answers the calls of all tools from a record, and runs none of them.
    pub fn recorded_tools(mut self, recorded: RecordedTools) -> Self {
        self.recorded_tools = Some(recorded);
        self
    }

    /// Grants the tools a capability, such as `fs:read:/data/**`.
    pub fn grant(mut self, capability: impl Into<String>) -> Self {
        self.grants.push(capability.into());
        self
    }

    /// Sets the retry policy of model calls, and the maximum delay before the retry of a tool that asks for one.
    pub fn retry(mut self, retry: RetryConfig) -> Self {
        self.retry = retry;
        self
    }

    /// Sets the jitter of the delays between attempts.
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// Adds a provider that is asked if those before it could not answer: their circuit is open, their quota is used
    /// up, the transcript is too long for them, or their retries are used up. A request that another provider would
    /// refuse as well, such as blocked content or an invalid request, is not sent again.
    pub fn fallback(self, provider: impl Provider + 'static) -> Self {
        self.shared_fallback(Arc::new(provider))
    }

    /// As [`AgentBuilder::fallback`], for a shared provider.
    pub fn shared_fallback(mut self, provider: Arc<dyn Provider>) -> Self {
        self.pools.push(vec![AgentProvider::Alone(provider)]);
        self
    }

    /// As [`AgentBuilder::fallback`], with the provider's retry budget, breaker and permits shared with others.
    pub fn fallback_on(mut self, upstream: Upstream) -> Self {
        self.pools.push(vec![AgentProvider::Shared(upstream)]);
        self
    }

    /// Adds another endpoint of the last model, the agent's own or a fallback: another address or another key. Calls go
    /// to the endpoint with the fewest calls in flight, and among equals in turn. An endpoint that asks to slow down,
    /// whose quota is used up, whose key is refused or that does not know the model is not used for the time that it
    /// names, or for its [cooldown](Upstream::cooldown), and another endpoint is asked at once. The call waits for the
    /// first endpoint that is available in time; the attempts of [`RetryConfig`] are those of each endpoint.
    ///
    /// ```
    /// use backstop_provider::ScriptedProvider;
    /// use backstop_react::{AgentBuilder, Upstream};
    ///
    /// let east = Upstream::new(ScriptedProvider::saying(["42"])).requests_per_minute(500);
    /// let west = Upstream::new(ScriptedProvider::saying(["42"])).requests_per_minute(500);
    /// let agent = AgentBuilder::on(east).endpoint(west).build()?;
    /// # Ok::<(), backstop_react::BuildError>(())
    /// ```
    pub fn endpoint(mut self, upstream: Upstream) -> Self {
        if let Some(pool) = self.pools.last_mut() {
            pool.push(AgentProvider::Shared(upstream));
        }
        self
    }

    /// Sets the timeout of one attempt of a model call; the default is 300 seconds.
    pub fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.attempt_timeout = timeout;
        self
    }

    /// Records runs in this log.
    pub fn log(self, log: impl EventLog + 'static) -> Self {
        self.shared_log(Arc::new(log))
    }

    /// Records runs in this shared log.
    pub fn shared_log(mut self, log: Arc<dyn EventLog>) -> Self {
        self.log = Some(log);
        self
    }

    /// Keeps everything in this database: the log of runs, whole errors, large results and state.
    pub fn store(self, store: &(impl Store + ?Sized)) -> Self {
        self.shared_log(store.log())
            .shared_error_store(store.errors())
            .shared_result_store(store.results())
            .maybe_state_store(store.state())
    }

    fn maybe_state_store(mut self, state: Option<Arc<dyn StateStore>>) -> Self {
        self.state = state.or(self.state);
        self
    }

    /// Sets the store for the effects that tools perform [once](layer0::ToolSpec::once), and for the spending of runs
    /// under a [limit](Self::spend_limit).
    pub fn state_store(self, state: impl StateStore + 'static) -> Self {
        self.shared_state_store(Arc::new(state))
    }

    /// As [`AgentBuilder::state_store`], for a shared store.
    pub fn shared_state_store(self, state: Arc<dyn StateStore>) -> Self {
        self.maybe_state_store(Some(state))
    }

    /// Sets the store of whole errors. The default of an agent with its own tools is a store in memory. With a store,
    /// the model has the tool `get_error_detail`.
    pub fn error_store(self, errors: impl ErrorStore + 'static) -> Self {
        self.shared_error_store(Arc::new(errors))
    }

    /// As [`AgentBuilder::error_store`], for a shared store.
    pub fn shared_error_store(mut self, errors: Arc<dyn ErrorStore>) -> Self {
        self.errors = StoreChoice::Given(errors);
        self
    }

    /// Keeps no errors: the model reads the first 500 characters of an error, and a note that it is cut.
    pub fn without_error_store(mut self) -> Self {
        self.errors = StoreChoice::None;
        self
    }

    /// Sets the store of large results. The default of an agent with its own tools is a store in memory. With a store,
    /// the model has the tool `get_tool_result`.
    pub fn result_store(self, results: impl ResultStore + 'static) -> Self {
        self.shared_result_store(Arc::new(results))
    }

    /// As [`AgentBuilder::result_store`], for a shared store.
    pub fn shared_result_store(mut self, results: Arc<dyn ResultStore>) -> Self {
        self.results = StoreChoice::Given(results);
        self
    }

    /// Keeps no large results: the model reads the beginning of a result, and a note that it is cut.
    pub fn without_result_store(mut self) -> Self {
        self.results = StoreChoice::None;
        self
    }

    /// Sets the memory, which is read before a run and written at its end.
    pub fn memory(mut self, memory: impl Memory + 'static) -> Self {
        self.memory = Some(Arc::new(memory));
        self
    }

    /// Sets the application's state for its tools: a parameter `State<T>`, or `context.state::<T>()`. An agent has one
    /// state, of one type; a second one replaces the first.
    pub fn state<T: Any + Send + Sync>(mut self, state: T) -> Self {
        self.app_state = Some(Arc::new(state));
        self
    }

    /// Adds a gate, a hook that can stop the run. Hooks of a point are called in the order they were added; around
    /// tools, gates before observers.
    pub fn gate(mut self, gate: impl Gate + 'static) -> Self {
        self.hooks.push(HookCode::Gate(Arc::new(gate)));
        self
    }

    /// Adds an observer, a hook that only observes.
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.hooks.push(HookCode::Observer(Arc::new(observer)));
        self
    }

    /// Sets the approver, which decides calls of tools that need approval while the run is in this process. Without an
    /// approver, or if it leaves an approval open, the run ends as waiting.
    pub fn approver(mut self, approver: impl Approver + 'static) -> Self {
        self.approver = Some(Arc::new(approver));
        self
    }

    /// Requires an approval for every call of a tool, regardless of the tool's own spec.
    pub fn require_approval(self, tool: impl Into<String>) -> Self {
        self.approval_rule(ApprovalRule::for_tool(tool))
    }

    /// Requires an approval with data that fits this JSON Schema for every call of a tool, regardless of the tool's own
    /// spec. The tool gets the data as [`ToolContext::approval_data`](backstop_tool::ToolContext::approval_data).
    pub fn approval_asks(self, tool: impl Into<String>, schema: Value) -> Self {
        self.approval_rule(ApprovalRule { schema: Some(schema), ..ApprovalRule::for_tool(tool) })
    }

    /// Requires an approval within this time for every call of a tool, regardless of the tool's own spec. A call that
    /// is not decided by then is denied, by the process that has the run at that time or takes it next.
    pub fn approval_expires_after(self, tool: impl Into<String>, time: Duration) -> Self {
        self.approval_rule(ApprovalRule {
            expires_after: Some(time),
            ..ApprovalRule::for_tool(tool)
        })
    }

    /// Requires an approval by one of these people for every call of a tool, regardless of the tool's own spec.
    /// Decisions of other people are refused.
    pub fn approvers<N: Into<Arc<str>>>(
        self,
        tool: impl Into<String>,
        names: impl IntoIterator<Item = N>,
    ) -> Self {
        let approvers = names.into_iter().collect();
        self.approval_rule(ApprovalRule { approvers, ..ApprovalRule::for_tool(tool) })
    }

    fn approval_rule(mut self, rule: ApprovalRule) -> Self {
        self.approvals.push(rule);
        self
    }

    /// Loads a pack: its tools, hooks and grants.
    pub fn pack(mut self, pack: Pack) -> Self {
        self.packs.push(pack);
        self
    }

    /// Sets the clock.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the redactor that removes secrets from text.
    pub fn redactor(mut self, redactor: Redactor) -> Self {
        self.redactor = redactor;
        self
    }

    /// Sets the agent's contract: everything beyond its tools' specs that determines the effects of calls. The contract
    /// is part of the agent's identity: with another contract it is another agent, and resumes a run only if that is
    /// allowed ([`ResumeRequest::allow_other_agent`](crate::ResumeRequest::allow_other_agent)). By default, the
    /// contract holds the grants. Tool servers are listed by name under the key `servers`, and the walls of each under
    /// `walls`. It must not contain secrets.
    pub fn contract(mut self, contract: Value) -> Self {
        self.contract = Some(contract);
        self
    }

    /// Sets the contract of a tool: everything beyond its arguments that determines the effects of its calls,
    /// regardless of the tool's own spec; see [`ToolSpec::contract`](layer0::ToolSpec::contract). It must not contain
    /// secrets.
    pub fn tool_contract(mut self, tool: impl Into<String>, contract: Value) -> Self {
        self.tool_contracts.push((tool.into(), contract));
        self
    }

    /// Sets the source of the agent in the run's record, such as the resolved agent file. It must not contain secrets.
    pub fn source(mut self, source: Value) -> Self {
        self.source = source;
        self
    }
}

/// Requirements for approvals of a tool's calls, regardless of the tool's own spec.
#[derive(Clone)]
pub(crate) struct ApprovalRule {
    pub(crate) tool: String,
    pub(crate) expires_after: Option<Duration>,
    pub(crate) approvers: Approvers,
    pub(crate) schema: Option<Value>,
}

impl ApprovalRule {
    fn for_tool(tool: impl Into<String>) -> Self {
        let (tool, approvers) = (tool.into(), Approvers::default());
        Self { tool, expires_after: None, approvers, schema: None }
    }
}
