//! Tools, hooks, grants and prompts under one name, with what other crates add.

use std::any::Any;
use std::sync::Arc;

use backstop_tool::{Tool, Toolset};

use crate::agent::build_error::{BuildError, PackError};
use crate::hook::{Gate, Hook, HookCode, Observer};

/// What belongs together: tools, the hooks that watch them, the capabilities they need, what the model is told
/// of them, and what other crates add. An agent loads it with [`AgentBuilder::pack`](crate::AgentBuilder::pack).
///
/// ```
/// use backstop_react::Pack;
///
/// let pack = Pack::new("billing")
///     .version("1.2.0")
///     .grant("network:outbound:billing.example.com")
///     .prompt("refunds", "Never refund more than was paid.");
/// assert_eq!(pack.to_string(), "billing 1.2.0");
/// ```
#[derive(Clone)]
pub struct Pack {
    name: Arc<str>,
    version: Option<Arc<str>>,
    tools: Vec<Arc<dyn Tool>>,
    hooks: Vec<HookCode>,
    grants: Vec<String>,
    prompts: Vec<(Arc<str>, Arc<str>)>,
    parts: Vec<Arc<dyn PackPart>>,
}

/// Something that another crate adds to a pack, and takes out of it again: the agent only sees to it that no
/// other pack brings one of its name.
pub trait PackPart: Any + Send + Sync {
    /// Returns the name.
    fn name(&self) -> &str;
}

impl Pack {
    /// Makes an empty pack.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            version: None,
            tools: Vec::new(),
            hooks: Vec::new(),
            grants: Vec::new(),
            prompts: Vec::new(),
            parts: Vec::new(),
        }
    }

    /// States the version, which errors name.
    #[must_use]
    pub fn version(mut self, version: impl Into<Arc<str>>) -> Self {
        self.version = Some(version.into());
        self
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

    /// Adds a capability: all tools of an agent may use it, and all behaviours of a host.
    #[must_use]
    pub fn grant(mut self, capability: impl Into<String>) -> Self {
        self.grants.push(capability.into());
        self
    }

    /// Adds what the agent is told, as a paragraph behind its instructions. The name keeps two packs from
    /// telling it the same.
    #[must_use]
    pub fn prompt(mut self, name: impl Into<Arc<str>>, text: impl Into<Arc<str>>) -> Self {
        self.prompts.push((name.into(), text.into()));
        self
    }

    /// Adds a part that is no agent's.
    #[must_use]
    pub fn part(mut self, part: Arc<dyn PackPart>) -> Self {
        self.parts.push(part);
        self
    }

    /// Returns the parts that are no agent's.
    #[must_use]
    pub fn parts(&self) -> &[Arc<dyn PackPart>] {
        &self.parts
    }

    /// Returns the capabilities.
    #[must_use]
    pub fn grants(&self) -> &[String] {
        &self.grants
    }

    /// Refuses a pack that was loaded before, and two that bring a part of one name.
    ///
    /// # Errors
    ///
    /// [`PackError`], naming both.
    pub fn check_all(packs: &[Self]) -> Result<(), PackError> {
        for (place, pack) in packs.iter().enumerate() {
            for other in &packs[..place] {
                if pack.name == other.name {
                    return Err(PackError::Twice { first: other.title(), second: pack.title() });
                }
                let mut names = pack.names();
                if let Some(name) = names.find(|name| other.names().any(|there| there == *name)) {
                    let name = name.1.into();
                    return Err(PackError::Clash {
                        pack: pack.title(),
                        name,
                        with: named(&other.title()),
                    });
                }
            }
        }
        Ok(())
    }

    /// Returns the names of what only packs bring, by kind.
    fn names(&self) -> impl Iterator<Item = (bool, &str)> {
        let prompts = self.prompts.iter().map(|(name, _)| (true, &**name));
        prompts.chain(self.parts.iter().map(|part| (false, part.name())))
    }

    fn title(&self) -> Arc<str> {
        self.to_string().into()
    }
}

/// As its name and version.
impl std::fmt::Display for Pack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.version {
            Some(version) => write!(f, "{} {version}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// What packs add to what an agent has.
pub(crate) struct Loading<'a> {
    pub(crate) tools: &'a mut Toolset,
    pub(crate) hooks: &'a mut Vec<Hook>,
    pub(crate) grants: &'a mut Vec<String>,
    pub(crate) instructions: &'a mut Arc<str>,
}

fn named(pack: &str) -> Arc<str> {
    format!("pack `{pack}`").into()
}

/// Who had a name before a pack brought it.
const AGENT: &str = "the agent itself";

/// Adds what packs bring to what an agent has.
pub(crate) fn load(packs: Vec<Pack>, into: Loading<'_>) -> Result<(), BuildError> {
    Pack::check_all(&packs)?;
    let Loading { tools, hooks, grants, instructions } = into;
    // The tools and hooks that a pack brought, with it.
    let mut brought: Vec<(Arc<str>, Arc<str>)> = Vec::new();
    for pack in packs {
        let title = pack.title();
        let clash = |name: &str, brought: &[(Arc<str>, Arc<str>)]| {
            let with = brought.iter().find(|(there, _)| &**there == name);
            let with = with.map_or_else(|| AGENT.into(), |(_, pack)| named(pack));
            PackError::Clash { pack: Arc::clone(&title), name: name.into(), with }
        };
        for tool in pack.tools {
            let name: Arc<str> = Arc::clone(&tool.spec().name);
            if tools.contains(&name) {
                return Err(clash(&name, &brought).into());
            }
            tools.add(tool)?;
            brought.push((name, Arc::clone(&title)));
        }
        for hook in pack.hooks.into_iter().map(Hook::of) {
            if hooks.iter().any(|there| there.name() == hook.name()) {
                return Err(clash(hook.name(), &brought).into());
            }
            brought.push((hook.name().into(), Arc::clone(&title)));
            hooks.push(hook);
        }
        for (_, text) in &pack.prompts {
            let between = if instructions.is_empty() { "" } else { "\n\n" };
            *instructions = format!("{instructions}{between}{text}").into();
        }
        grants.extend(pack.grants);
    }
    Ok(())
}
