//! Tools, hooks and grants under one name.

use std::sync::Arc;

use backstop_tool::{Tool, Toolset};

use crate::agent::build_error::{BuildError, PackError};
use crate::hook::{Gate, Hook, HookCode, Observer};

/// What belongs together: tools, the hooks that watch them and the capabilities they need. An agent
/// loads it with [`AgentBuilder::pack`](crate::AgentBuilder::pack).
#[derive(Clone)]
pub struct Pack {
    pub(crate) name: Arc<str>,
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    pub(crate) hooks: Vec<HookCode>,
    pub(crate) grants: Vec<String>,
}

impl Pack {
    /// Makes an empty pack.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), tools: Vec::new(), hooks: Vec::new(), grants: Vec::new() }
    }

    /// Adds a tool.
    #[must_use]
    pub fn tool(mut self, tool: impl Tool + 'static) -> Self {
        self.tools.push(Arc::new(tool));
        self
    }

    /// Adds a gate.
    #[must_use]
    pub fn gate(mut self, gate: impl Gate + 'static) -> Self {
        self.hooks.push(HookCode::Gate(Arc::new(gate)));
        self
    }

    /// Adds an observer.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.hooks.push(HookCode::Observer(Arc::new(observer)));
        self
    }

    /// Adds a capability that all tools of the agent may use.
    #[must_use]
    pub fn grant(mut self, capability: impl Into<String>) -> Self {
        self.grants.push(capability.into());
        self
    }
}

/// Adds what packs bring to what an agent has.
pub(crate) fn load(
    packs: Vec<Pack>,
    tools: &mut Toolset,
    hooks: &mut Vec<Hook>,
    grants: &mut Vec<String>,
) -> Result<(), BuildError> {
    let mut loaded: Vec<Arc<str>> = Vec::new();
    for pack in packs {
        let name = pack.name;
        if loaded.contains(&name) {
            return Err(PackError::Twice(name).into());
        }
        let clash = |what: &str| PackError::Clash { pack: Arc::clone(&name), name: what.into() };
        for tool in pack.tools {
            if tools.contains(&tool.spec().name) {
                return Err(clash(&tool.spec().name).into());
            }
            tools.add(tool)?;
        }
        for hook in pack.hooks.into_iter().map(Hook::of) {
            if hooks.iter().any(|there| there.name() == hook.name()) {
                return Err(clash(hook.name()).into());
            }
            hooks.push(hook);
        }
        grants.extend(pack.grants);
        loaded.push(name);
    }
    Ok(())
}
