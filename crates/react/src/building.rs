//! From what was asked for to an agent.

use std::sync::Arc;

use error_store::{ErrorDetail, ResultDetail};
use layer0::JsonText;
use react_machine::{AgentDefinition, DefinitionError};
use retry::RetryPolicy;
use serde_json::{Value, json};
use thiserror::Error;
use tool::{Grants, PatternError, RegistrationError, ToolNotFound, Toolset};

use crate::agent::{Agent, Inner, LazilyPrepared};
use crate::builder::AgentBuilder;
use crate::hook::Hook;
use crate::live::Hub;
use crate::model;
use crate::pack::{self, PackError};
use crate::redacting::without_secrets;
use crate::upstream::{Asked, Upstream};

impl AgentBuilder {
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
            .map(Asked::provider)
            .map(|provider| json!({ "provider": provider.name(), "model": provider.model() }))
            .collect();
        let mut definition = AgentDefinition {
            name: self.name,
            instructions: self.instructions,
            limits: self.limits,
            budget: self.budget,
            price: self.price,
            memory: self.memory.is_some(),
            hooks: shared(self.hooks.iter().map(Hook::record).collect()),
            exploratory_tools: shared(self.exploratory_tools),
            tools: tools.specs().cloned().collect(),
            output_schema: None,
            runtime: JsonText::default(),
        };
        let mut runtime = json!({
            "model": {
                "provider": self.model.provider().name(),
                "model": self.model.provider().model(),
                "max_output_tokens": self.settings.max_output_tokens,
                "temperature": self.settings.temperature,
                "stream": self.stream,
            },
            "retry": self.retry,
            "grant": self.grants,
            "source": self.source,
        });
        if !fallbacks.is_empty() {
            runtime["model"]["fallback"] = fallbacks.into();
        }
        definition.runtime = (&runtime).into();
        let definition = without_secrets(&self.redactor, definition).map_err(BuildError::Secret)?;
        definition.validate()?;
        let clock = Arc::clone(&self.clock);
        let retry = RetryPolicy::new(self.retry, Arc::clone(&clock)).jitter(self.jitter.clone());
        let open = |asked: Asked| asked.open(&clock);
        let first = open(self.model);
        let mut upstreams: Vec<Upstream> = self.fallbacks.into_iter().map(open).collect();
        let last = match upstreams.pop() {
            None => first,
            Some(last) => {
                upstreams.insert(0, first);
                last
            }
        };
        let stack =
            model::stack(upstreams, last, self.stream, &retry, self.attempt_timeout, &clock);
        Ok(Agent {
            inner: Arc::new(Inner {
                definition: Arc::new(definition),
                prepared: LazilyPrepared::default(),
                stack,
                stream: self.stream,
                retry: self.retry,
                jitter: self.jitter,
                settings: self.settings,
                tools,
                grants: Grants::parse(&self.grants)?,
                log: self.log,
                errors: self.errors,
                results: self.results,
                memory: self.memory,
                app_state: self.app_state,
                hooks: self.hooks.into(),
                approver: self.approver,
                clock: self.clock,
                redactor: self.redactor,
                hub: Hub::default(),
            }),
        })
    }
}

/// Shares items; sharing none takes no memory.
pub(crate) fn shared<T>(items: Vec<T>) -> Arc<[T]> {
    if items.is_empty() { Arc::default() } else { items.into() }
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
