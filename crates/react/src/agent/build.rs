//! Building of an agent from its builder.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use backstop_error_store::{ErrorDetail, ResultDetail};
use backstop_provider::{ModelSettings, ToolChoice};
use backstop_react_machine::{
    AgentDefinition, CheckedDefinition, DefinitionError, Price, SpendLimit,
};
use backstop_redact::Redactor;
use backstop_retry::RetryPolicy;
use backstop_state::RedactedStateStore;
use backstop_tool::{Grants, Schema, Toolset};
use layer0::name::check_name;
use layer0::{JsonText, StateStore, is_deeper, text};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::agent::build_error::BuildError;
use crate::agent::builder::{AgentBuilder, ApprovalRule};
use crate::agent::inner::{AgentInner, LazyRecord, Schemas};
use crate::agent::pack;
use crate::hook::Hook;
use crate::once::{Once, OnceStores};
use crate::pool::stack;
use crate::record::recordable::without_secrets;
use crate::record::transcript_cache::TranscriptCache;
use crate::spend_limits::SpendLimits;
use crate::stores::Stores;
use crate::upstream::{AgentProvider, Upstream};

/// Maximum nesting depth of an agent's source: it is read again as part of the definition, which serde_json does down
/// to 128.
const MAX_SOURCE_DEPTH: usize = 100;
/// Maximum temperature of any provider.
const MAX_TEMPERATURE: f32 = 2.0;
/// Maximum of `top_p`: the whole probability mass.
const MAX_TOP_P: f32 = 1.0;

impl AgentBuilder {
    /// Builds the agent.
    ///
    /// # Errors
    ///
    /// [`BuildError`], with the problem and its remedy.
    pub fn build(self) -> Result<Agent, BuildError> {
        // The parts are asked for their properties, which runs other people's code.
        catch_unwind(AssertUnwindSafe(|| self.build_unguarded()))
            .unwrap_or_else(|panic| Err(BuildError::Panicked(text::panic_message(panic))))
    }

    fn build_unguarded(mut self) -> Result<Agent, BuildError> {
        // Wraps any given store: no secret of this process is written to it.
        self.state = self.state.take().map(|store| {
            let redacted = RedactedStateStore::new(store, self.redactor.clone());
            Arc::new(redacted) as Arc<dyn StateStore>
        });
        let patience = Duration::from_millis(self.limits.store_timeout_ms);
        let mut tools = Toolset::new();
        for tool in std::mem::take(&mut self.tools) {
            tools.add(tool)?;
        }
        for tool in self.outside.sources.iter().flat_map(|source| source.tools()) {
            tools.add(tool)?;
        }
        let mut hooks: Vec<Hook> =
            std::mem::take(&mut self.hooks).into_iter().map(Hook::from_code).collect();
        let into = pack::Loading {
            tools: &mut tools,
            hooks: &mut hooks,
            grants: &mut self.grants,
            instructions: &mut self.instructions,
        };
        pack::load(std::mem::take(&mut self.packs), into)?;
        match (&self.recorded_tools, &self.state) {
            (Some(recorded), _) => {
                tools = recorded.stand_ins(&tools)?;
                // The record has the decisions of people.
                self.approvals.clear();
            }
            (None, Some(state)) => {
                let (log, clock, redactor) = (self.log.as_ref(), &self.clock, &self.redactor);
                let stores = OnceStores { state, log, clock, redactor, patience };
                tools.replace(|spec, tool| Once::around(spec, tool, &stores));
            }
            (None, None) => {
                if let Some(spec) = tools.specs().find(|spec| spec.once.is_some()) {
                    let what = format!("tool `{}` is called once", spec.name);
                    return Err(BuildError::MissingStateStore(what.into()));
                }
            }
        }
        let has_tools = tools.specs().next().is_some();
        let stores = Stores::open(self.errors, self.results, has_tools, patience, &self.clock);
        if has_tools {
            if let Some(errors) = &stores.errors {
                tools.add(Arc::new(ErrorDetail::new(Arc::clone(errors))))?;
            }
            if let Some(results) = &stores.results {
                tools.add(Arc::new(ResultDetail::new(Arc::clone(results))))?;
            }
        }
        check_hooks(&hooks)?;
        let state = self.app_state.as_deref();
        for (tool, wanted) in tools.state_types() {
            if !state.is_some_and(|state| wanted.fits(state)) {
                let (tool, wanted) = (tool.into(), wanted.name());
                return Err(BuildError::MissingState { tool, wanted });
            }
        }
        for ApprovalRule { tool, expires_after, approvers, schema } in self.approvals {
            tools.require_approval(&tool)?;
            tools.limit_approvals(&tool, expires_after, approvers)?;
            if let Some(schema) = schema {
                tools.ask_for_data(&tool, &schema)?;
            }
        }
        for (tool, mut contract) in std::mem::take(&mut self.tool_contracts) {
            self.redactor.redact_settings(&mut contract);
            tools.set_contract(&tool, &contract);
        }
        if self.retry.attempts == 0 {
            return Err(BuildError::Definition(DefinitionError::ZeroLimit("retry.attempts")));
        }
        check_attempt_timeouts(self.attempt_timeout, self.pools.iter().flatten())?;
        if self.exploratory_tools.iter().any(|part| part.trim().is_empty()) {
            // An empty part is contained in every name.
            return Err(BuildError::Definition(DefinitionError::Empty("exploratory_tools")));
        }
        check_schemas(&self.schemas)?;
        check_settings(&self.settings)?;
        check_tool_choice(&self.settings, &tools)?;
        for asked in self.pools.iter().flatten() {
            asked.provider().check_settings(&self.settings)?;
        }
        if is_deeper(&self.source, MAX_SOURCE_DEPTH) {
            let too_deep = DefinitionError::TooDeep("source", MAX_SOURCE_DEPTH);
            return Err(BuildError::Definition(too_deep));
        }
        let prices = prices(self.price, self.pools.iter().flatten())?;
        let spend_limits = share_items(without_doubles(std::mem::take(&mut self.spend_limits)));
        let counts_cost = self.budget.max_cost_usd.is_some() || !spend_limits.is_empty();
        if counts_cost && prices.is_empty() {
            check_priced(self.price, self.pools.iter().flatten())?;
        }
        let mut definition = AgentDefinition::new(self.name, self.instructions);
        (definition.limits, definition.budget) = (self.limits, self.budget);
        definition.spend_limits = Arc::clone(&spend_limits);
        definition.price = prices.first().copied();
        definition.memory = self.memory.is_some();
        definition.hooks = share_items(hooks.iter().map(Hook::record).collect());
        definition.exploratory_tools = share_items(self.exploratory_tools);
        definition.tools = tools.specs().cloned().collect();
        let mut model = models(&self.pools);
        model["max_output_tokens"] = json!(self.settings.max_output_tokens);
        model["temperature"] = json!(self.settings.temperature);
        model["stream"] = self.stream.into();
        further_settings(&self.settings, &mut model);
        let mut runtime = json!({
            "model": model,
            "retry": self.retry,
            "grant": self.grants,
            "source": self.source,
        });
        // The parts of an agent may name secrets that the process does not know.
        self.redactor.redact_settings(&mut runtime);
        definition.runtime = (&runtime).into();
        definition.contract = contract(self.contract, &runtime["grant"], &self.redactor);
        let definition = without_secrets(&self.redactor, definition).map_err(BuildError::Secret)?;
        let definition = CheckedDefinition::new(definition)?;
        let clock = Arc::clone(&self.clock);
        let spend_limits = match (spend_limits.is_empty(), self.state) {
            (true, _) => None,
            (false, None) => {
                return Err(BuildError::MissingStateStore("the agent has a spend limit".into()));
            }
            (false, Some(state)) => {
                let name = Arc::clone(&definition.name);
                let limits = SpendLimits::new(name, spend_limits, state, patience, &clock);
                Some(Box::new(limits))
            }
        };
        let retry = RetryPolicy::new(self.retry, Arc::clone(&clock)).jitter(self.jitter.clone());
        let mut prices = prices.into_iter();
        let mut open =
            |asked: AgentProvider| Upstream { price: prices.next(), ..asked.open(&clock) };
        let open = |pool: Vec<AgentProvider>| pool.into_iter().map(&mut open).collect();
        let pools = self.pools.into_iter().map(open).collect();
        let models = stack(pools, self.stream, &retry, self.attempt_timeout, &clock);
        Ok(Agent {
            inner: Arc::new(AgentInner {
                definition,
                record: LazyRecord::default(),
                schemas: self.schemas.into_box(),
                models,
                stream: self.stream,
                retry: self.retry,
                jitter: self.jitter,
                settings: self.settings,
                tools,
                outside: self.outside.into_box(),
                grants: Grants::parse(&self.grants)?,
                log: self.log,
                transcripts: TranscriptCache::default(),
                stores,
                spend_limits,
                memory: self.memory,
                app_state: self.app_state,
                hooks: hooks.into(),
                approver: self.approver,
                clock: self.clock,
                redactor: self.redactor,
                hub: Arc::default(),
            }),
        })
    }
}

/// Returns the contract of the agent: the stated one, or else the grants.
fn contract(stated: Option<Value>, granted: &Value, redactor: &Redactor) -> Option<JsonText> {
    let is_granted = granted.as_array().is_some_and(|granted| !granted.is_empty());
    let mut contract = stated.or_else(|| is_granted.then(|| json!({ "grant": granted })))?;
    redactor.redact_settings(&mut contract);
    Some((&contract).into())
}

/// Returns the models in their recorded form.
fn models(pools: &[Vec<AgentProvider>]) -> Value {
    let name = |asked: &AgentProvider| json!({ "provider": asked.provider().name(), "model": asked.provider().model() });
    let mut models = pools.iter().filter_map(|pool| {
        let (first, others) = pool.split_first()?;
        let mut model = name(first);
        if !others.is_empty() {
            model["pool"] = others.iter().map(name).collect();
        }
        Some(model)
    });
    let mut first = models.next().unwrap_or_else(|| json!({}));
    let fallbacks: Vec<Value> = models.collect();
    if !fallbacks.is_empty() {
        first["fallback"] = fallbacks.into();
    }
    first
}

/// Returns the price of each provider in order; empty if one of them has none, because the cost of a run would be too
/// low then.
fn prices<'a>(
    agent: Option<Price>,
    asked: impl Iterator<Item = &'a AgentProvider>,
) -> Result<Vec<Price>, DefinitionError> {
    let prices: Option<Vec<Price>> = asked.map(|asked| asked.price().or(agent)).collect();
    let prices = prices.unwrap_or_default();
    prices.iter().copied().try_for_each(Price::check)?;
    Ok(prices)
}

/// Keeps the lower of two limits that count the same spending.
fn without_doubles(limits: Vec<SpendLimit>) -> Vec<SpendLimit> {
    let mut kept: Vec<SpendLimit> = Vec::new();
    for limit in limits {
        match kept.iter_mut().find(|other| other.counts_as(&limit)) {
            Some(other) if other.max_cost_usd <= limit.max_cost_usd => {}
            Some(other) => *other = limit,
            None => kept.push(limit),
        }
    }
    kept
}

/// Refuses attempt timeouts of zero.
fn check_attempt_timeouts<'a>(
    attempt_timeout: Duration,
    asked: impl Iterator<Item = &'a AgentProvider>,
) -> Result<(), DefinitionError> {
    let own = asked.filter_map(AgentProvider::attempt_timeout);
    match std::iter::once(attempt_timeout).chain(own).any(|timeout| timeout.is_zero()) {
        true => Err(DefinitionError::ZeroLimit("attempt_timeout")),
        false => Ok(()),
    }
}

/// Refuses invalid JSON Schemas.
fn check_schemas(Schemas { input, output }: &Schemas) -> Result<(), BuildError> {
    for (of, schema) in [("input", input), ("output", output)] {
        if let Some(schema) = schema {
            Schema::new(schema).map_err(|source| BuildError::Schema { of, source })?;
        }
    }
    Ok(())
}

/// Refuses a model without a price, whose calls cannot be counted against a cost budget.
fn check_priced<'a>(
    agent: Option<Price>,
    mut asked: impl Iterator<Item = &'a AgentProvider>,
) -> Result<(), BuildError> {
    let Some(unpriced) = asked.find(|asked| asked.price().or(agent).is_none()) else {
        return Ok(());
    };
    let provider = unpriced.provider();
    let (model, provider) = (provider.model().into(), provider.name().into());
    Err(BuildError::UnknownPrice { model, provider })
}

/// Refuses settings that no provider accepts.
fn check_settings(settings: &ModelSettings) -> Result<(), DefinitionError> {
    if settings.max_output_tokens == Some(0) {
        return Err(DefinitionError::ZeroLimit("max_output_tokens"));
    }
    let numbers = [
        ("temperature", settings.temperature, MAX_TEMPERATURE),
        ("top_p", settings.top_p, MAX_TOP_P),
    ];
    for (key, given, max) in numbers {
        if let Some(given) = given.filter(|given| !(0.0..=max).contains(given)) {
            return Err(DefinitionError::out_of_range(key, given, max));
        }
    }
    if settings.stop.iter().any(|text| text.is_empty()) {
        return Err(DefinitionError::Empty("stop"));
    }
    Ok(())
}

/// Refuses a choice of tools that the agent does not have.
fn check_tool_choice(settings: &ModelSettings, tools: &Toolset) -> Result<(), BuildError> {
    match &settings.tool_choice {
        Some(ToolChoice::Tool(name)) => Ok(tools.require(name)?),
        Some(choice) if choice.forces_a_call() && tools.specs().next().is_none() => {
            Err(BuildError::ToolChoice(choice.as_str().into()))
        }
        _ => Ok(()),
    }
}

/// Adds the settings that are recorded only if they are set.
fn further_settings(settings: &ModelSettings, model: &mut Value) {
    if let (Ok(Value::Object(settings)), Some(model)) =
        (serde_json::to_value(settings), model.as_object_mut())
    {
        for (key, value) in settings {
            model.entry(key).or_insert(value);
        }
    }
}

/// Refuses hooks with invalid names, and two hooks with one name.
fn check_hooks(hooks: &[Hook]) -> Result<(), BuildError> {
    for (index, hook) in hooks.iter().enumerate() {
        check_name(hook.name())?;
        if hooks[..index].iter().any(|other| other.name() == hook.name()) {
            return Err(BuildError::DuplicateHook(hook.name().into()));
        }
    }
    Ok(())
}

/// Shares items; an empty list needs no allocation.
pub(crate) fn share_items<T>(items: Vec<T>) -> Arc<[T]> {
    if items.is_empty() { Arc::default() } else { items.into() }
}
