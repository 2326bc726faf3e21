use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use clock::{Clock, SystemClock};
use error_store::{ErrorDetail, ErrorStore, ResultDetail, ResultStore};
use event_log::EventLog;
use provider::{ModelSettings, Provider};
use react_machine::{AgentDefinition, Budget, DefinitionError, Limits, Price};
use redact::Redactor;
use retry::{Breaker, BreakerConfig, Jitter, RetryBudget, RetryConfig, RetryPolicy};
use serde_json::{Value, json};
use thiserror::Error;
use tool::{Grants, PatternError, RegistrationError, Tool, ToolNotFound, Toolset};

use crate::agent::{Agent, Inner};
use crate::approval::Approver;
use crate::digest::record;
use crate::hook::{Gate, Hook, Observer};
use crate::hooking::Hooks;
use crate::live::Hub;
use crate::memory::Memory;
use crate::model::{self, Upstream};
use crate::pack::{self, Pack, PackError};
use crate::redacting::without_secrets;

/// How long one attempt of a model call may take.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(300);

/// Puts an agent together. Safe defaults are on: finite limits, tool timeouts, retries with a
/// budget, redaction; nothing is granted to tools, and no log or error store is kept until one is
/// given.
#[derive(Clone)]
#[must_use = "an agent is made by `build`"]
pub struct AgentBuilder {
    provider: Arc<dyn Provider>,
    name: Arc<str>,
    instructions: Arc<str>,
    limits: Limits,
    budget: Budget,
    price: Option<Price>,
    exploratory_tools: Vec<String>,
    settings: ModelSettings,
    stream: bool,
    tools: Vec<Arc<dyn Tool>>,
    grants: Vec<String>,
    retry: RetryConfig,
    jitter: Jitter,
    retry_budget: Option<RetryBudget>,
    breaker: Option<Breaker>,
    /// Asked in turn after the provider.
    fallbacks: Vec<Arc<dyn Provider>>,
    attempt_timeout: Duration,
    log: Option<Arc<dyn EventLog>>,
    errors: Option<Arc<dyn ErrorStore>>,
    results: Option<Arc<dyn ResultStore>>,
    memory: Option<Arc<dyn Memory>>,
    app_state: Option<Arc<dyn Any + Send + Sync>>,
    hooks: Vec<Hook>,
    approver: Option<Arc<dyn Approver>>,
    approvals: Vec<String>,
    packs: Vec<Pack>,
    clock: Arc<dyn Clock>,
    redactor: Redactor,
    source: Value,
}

impl AgentBuilder {
    /// Begins an agent around a provider that is shared.
    pub fn shared(provider: Arc<dyn Provider>) -> Self {
        Self {
            provider,
            name: "agent".into(),
            instructions: Arc::default(),
            limits: Limits::default(),
            budget: Budget::default(),
            price: None,
            exploratory_tools: Vec::new(),
            settings: ModelSettings::default(),
            stream: true,
            tools: Vec::new(),
            grants: Vec::new(),
            retry: RetryConfig::default(),
            jitter: Jitter::Random,
            retry_budget: None,
            breaker: None,
            fallbacks: Vec::new(),
            attempt_timeout: ATTEMPT_TIMEOUT,
            log: None,
            errors: None,
            results: None,
            memory: None,
            app_state: None,
            hooks: Vec::new(),
            approver: None,
            approvals: Vec::new(),
            packs: Vec::new(),
            clock: Arc::new(SystemClock),
            redactor: Redactor::new(),
            source: Value::Null,
        }
    }

    /// Names the agent; `agent` otherwise.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// Tells the model what it is for.
    pub fn instructions(mut self, instructions: impl Into<Arc<str>>) -> Self {
        self.instructions = instructions.into();
        self
    }

    /// Sets the limits of a run.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets what a run may use.
    pub fn budget(mut self, budget: Budget) -> Self {
        self.budget = budget;
        self
    }

    /// Sets what tokens cost, so that usage has a cost and a cost budget can be kept.
    pub fn price(mut self, price: Price) -> Self {
        self.price = Some(price);
        self
    }

    /// Treats tools whose name contains this, in any case, as ones that only look around.
    pub fn exploratory_tool(mut self, part_of_name: impl Into<String>) -> Self {
        self.exploratory_tools.push(part_of_name.into());
        self
    }

    /// Sets how the model should answer.
    pub fn settings(mut self, settings: ModelSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Asks for the answer while it comes (the default), or whole.
    pub fn stream(mut self, stream: bool) -> Self {
        self.stream = stream;
        self
    }

    /// Gives the model a tool.
    pub fn tool(self, tool: impl Tool + 'static) -> Self {
        self.shared_tool(Arc::new(tool))
    }

    /// Gives the model a tool that is shared.
    pub fn shared_tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.push(tool);
        self
    }

    /// Grants the tools a capability, such as `fs:read:/data/**`.
    pub fn grant(mut self, capability: impl Into<String>) -> Self {
        self.grants.push(capability.into());
        self
    }

    /// Sets how model calls are retried, and how long a tool that asks to be tried again is waited
    /// for.
    pub fn retry(mut self, retry: RetryConfig) -> Self {
        self.retry = retry;
        self
    }

    /// Draws the waits between attempts from this jitter.
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// Shares the retries of an endpoint with other agents; an own budget otherwise.
    pub fn retry_budget(mut self, budget: RetryBudget) -> Self {
        self.retry_budget = Some(budget);
        self
    }

    /// Shares the breaker of the provider's endpoint with other agents; by default an agent has one
    /// of its own for each provider.
    pub fn breaker(mut self, breaker: Breaker) -> Self {
        self.breaker = Some(breaker);
        self
    }

    /// Asks this provider when those before it could not answer: their circuit is open, their quota
    /// is used up, the conversation is too long for them, or retry gave up. What another would refuse
    /// just the same, such as blocked content or an invalid request, is not asked again.
    pub fn fallback(self, provider: impl Provider + 'static) -> Self {
        self.shared_fallback(Arc::new(provider))
    }

    /// As [`AgentBuilder::fallback`], for a provider that is shared.
    pub fn shared_fallback(mut self, provider: Arc<dyn Provider>) -> Self {
        self.fallbacks.push(provider);
        self
    }

    /// Limits one attempt of a model call; 300 seconds otherwise.
    pub fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.attempt_timeout = timeout;
        self
    }

    /// Records runs in this log.
    pub fn log(self, log: impl EventLog + 'static) -> Self {
        self.shared_log(Arc::new(log))
    }

    /// Records runs in this log, which is shared.
    pub fn shared_log(mut self, log: Arc<dyn EventLog>) -> Self {
        self.log = Some(log);
        self
    }

    /// Keeps whole errors in this store, and gives the model `get_error_detail`.
    pub fn error_store(self, errors: impl ErrorStore + 'static) -> Self {
        self.shared_error_store(Arc::new(errors))
    }

    /// Keeps whole errors in this store, which is shared, and gives the model `get_error_detail`.
    pub fn shared_error_store(mut self, errors: Arc<dyn ErrorStore>) -> Self {
        self.errors = Some(errors);
        self
    }

    /// Keeps large results in this store, and gives the model `get_tool_result`.
    pub fn result_store(self, results: impl ResultStore + 'static) -> Self {
        self.shared_result_store(Arc::new(results))
    }

    /// Keeps large results in this store, which is shared, and gives the model `get_tool_result`.
    pub fn shared_result_store(mut self, results: Arc<dyn ResultStore>) -> Self {
        self.results = Some(results);
        self
    }

    /// Reads this memory before a run and writes it at the end.
    pub fn memory(mut self, memory: impl Memory + 'static) -> Self {
        self.memory = Some(Arc::new(memory));
        self
    }

    /// Gives the tools something of the application's own: `context.state::<T>()`.
    pub fn state<T: Any + Send + Sync>(mut self, state: T) -> Self {
        self.app_state = Some(Arc::new(state));
        self
    }

    /// Calls this hook, which decides whether the run goes on. Hooks of a point are called in the
    /// order they were added; around tools, gates before observers.
    pub fn gate(mut self, gate: impl Gate + 'static) -> Self {
        self.hooks.push(Hook::gate(Arc::new(gate)));
        self
    }

    /// Calls this hook, which looks on.
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.hooks.push(Hook::observer(Arc::new(observer)));
        self
    }

    /// Asks this about calls of tools that need approval, while the run is in this process. Without
    /// one, or when it leaves a question open, the run ends as waiting.
    pub fn approver(mut self, approver: impl Approver + 'static) -> Self {
        self.approver = Some(Arc::new(approver));
        self
    }

    /// Lets a person agree to every call of a tool, whatever the tool itself says.
    pub fn require_approval(mut self, tool: impl Into<String>) -> Self {
        self.approvals.push(tool.into());
        self
    }

    /// Loads a pack: its tools, hooks and grants.
    pub fn pack(mut self, pack: Pack) -> Self {
        self.packs.push(pack);
        self
    }

    /// Takes the time from this clock.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Takes secrets out of text with this redactor.
    pub fn redactor(mut self, redactor: Redactor) -> Self {
        self.redactor = redactor;
        self
    }

    /// Notes in the run's record where the agent came from, such as the resolved agent file. It
    /// must hold no secret.
    pub fn source(mut self, source: Value) -> Self {
        self.source = source;
        self
    }

    /// Makes the agent.
    ///
    /// # Errors
    ///
    /// [`BuildError`], naming what is wrong and how to fix it.
    pub fn build(mut self) -> Result<Agent, BuildError> {
        let mut tools = Toolset::new();
        for tool in std::mem::take(&mut self.tools) {
            tools.add(tool)?;
        }
        pack::load(std::mem::take(&mut self.packs), &mut tools, &mut self.hooks, &mut self.grants)?;
        if let Some(errors) = &self.errors {
            tools.add(Arc::new(ErrorDetail::new(Arc::clone(errors))))?;
        }
        if let Some(results) = &self.results {
            tools.add(Arc::new(ResultDetail::new(Arc::clone(results))))?;
        }
        for name in &self.approvals {
            tools.require_approval(name)?;
        }
        if self.retry.attempts == 0 {
            return Err(BuildError::Definition(DefinitionError::ZeroLimit("retry.attempts")));
        }
        let fallbacks: Vec<Value> = self
            .fallbacks
            .iter()
            .map(|provider| json!({ "provider": provider.name(), "model": provider.model() }))
            .collect();
        let mut definition = AgentDefinition {
            name: self.name,
            instructions: self.instructions,
            limits: self.limits,
            budget: self.budget,
            price: self.price,
            memory: self.memory.is_some(),
            hooks: self.hooks.iter().map(Hook::record).collect(),
            exploratory_tools: self.exploratory_tools.into(),
            tools: tools.specs().cloned().collect(),
            output_schema: None,
            runtime: json!({
                "model": {
                    "provider": self.provider.name(),
                    "model": self.provider.model(),
                    "max_output_tokens": self.settings.max_output_tokens,
                    "temperature": self.settings.temperature,
                    "stream": self.stream,
                },
                "retry": self.retry,
                "grant": self.grants,
                "source": self.source,
            }),
        };
        if !fallbacks.is_empty() {
            definition.runtime["model"]["fallback"] = fallbacks.into();
        }
        let definition = without_secrets(&self.redactor, definition).map_err(BuildError::Secret)?;
        definition.validate()?;
        let record = record(&definition);
        let clock = Arc::clone(&self.clock);
        let retry = RetryPolicy::new(self.retry, Arc::clone(&clock)).jitter(self.jitter);
        let upstream = |provider: Arc<dyn Provider>| Upstream {
            provider,
            budget: RetryBudget::new(Arc::clone(&clock)),
            breaker: Breaker::new(BreakerConfig::default(), Arc::clone(&clock)),
        };
        let mut first = upstream(self.provider);
        first.budget = self.retry_budget.unwrap_or(first.budget);
        first.breaker = self.breaker.unwrap_or(first.breaker);
        let mut upstreams: Vec<Upstream> = self.fallbacks.into_iter().map(upstream).collect();
        let providers = u32::try_from(upstreams.len()).unwrap_or(u32::MAX).saturating_add(1);
        let last = match upstreams.pop() {
            None => first,
            Some(last) => {
                upstreams.insert(0, first);
                last
            }
        };
        let stack =
            model::stack(upstreams, last, self.stream, &retry, self.attempt_timeout, &clock);
        let hooks = Hooks {
            hooks: self.hooks,
            limit: Duration::from_millis(definition.limits.hook_timeout_ms),
            clock: Arc::clone(&self.clock),
            redactor: self.redactor.clone(),
        };
        Ok(Agent {
            inner: Arc::new(Inner {
                definition: Arc::new(definition),
                record,
                stack,
                tool_retry: retry,
                most_attempts: self.retry.attempts.saturating_mul(providers),
                settings: self.settings,
                tools,
                grants: Grants::parse(&self.grants)?,
                log: self.log,
                errors: self.errors,
                results: self.results,
                memory: self.memory,
                app_state: self.app_state,
                hooks,
                approver: self.approver,
                clock: self.clock,
                redactor: self.redactor,
                hub: Arc::new(Hub::default()),
            }),
        })
    }
}

/// Says why an agent cannot be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A limit cannot be kept.
    #[error("invalid limit")]
    Definition(#[from] DefinitionError),
    /// A grant cannot be read.
    #[error("invalid grant")]
    Grant(#[from] PatternError),
    /// A pack cannot be loaded.
    #[error("invalid pack")]
    Pack(#[from] PackError),
    /// A secret of the process is one of the words that a definition is made of.
    #[error("the definition cannot be recorded without its secrets")]
    Secret(#[source] serde_json::Error),
    /// A tool cannot be added.
    #[error("invalid tool")]
    Tool(#[from] RegistrationError),
    /// A tool that is named somewhere is not there.
    #[error("unknown tool")]
    ToolNotFound(#[from] ToolNotFound),
}
