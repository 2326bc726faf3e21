//! Tools, hooks, grants and prompts under one name, with the parts of other crates.

use std::any::Any;
use std::sync::Arc;

use backstop_tool::{Tool, Toolset};

use crate::agent::build_error::{BuildError, PackError};
use crate::hook::{Gate, Hook, HookCode, Observer};

/// A pack of related parts: tools, the hooks that watch them, the capabilities they need, the prompts about them, and
/// parts of other crates. An agent loads it with [`AgentBuilder::pack`](crate::AgentBuilder::pack).
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

/// A part of a pack that another crate adds and reads. The agent only ensures that no two packs bring parts with one
/// name.
pub trait PackPart: Any + Send + Sync {
    /// Returns the name.
    fn name(&self) -> &str;
}

impl Pack {
    /// Returns an empty pack.
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

    /// Sets the version, which appears in errors.
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

    /// Adds a capability for all tools of an agent and all behaviours of a host.
    #[must_use]
    pub fn grant(mut self, capability: impl Into<String>) -> Self {
        self.grants.push(capability.into());
        self
    }

    /// Adds a prompt, a paragraph after the agent's instructions. Two packs cannot have prompts with one name.
    #[must_use]
    pub fn prompt(mut self, name: impl Into<Arc<str>>, text: impl Into<Arc<str>>) -> Self {
        self.prompts.push((name.into(), text.into()));
        self
    }

    /// Adds a part that the agent does not use.
    #[must_use]
    pub fn part(mut self, part: Arc<dyn PackPart>) -> Self {
        self.parts.push(part);
        self
    }

    /// Returns the parts that the agent does not use.
    #[must_use]
    pub fn parts(&self) -> &[Arc<dyn PackPart>] {
        &self.parts
    }

    /// Returns the capabilities.
    #[must_use]
    pub fn grants(&self) -> &[String] {
        &self.grants
    }

    /// Refuses two packs with one name, and two packs that bring a prompt or part with one name.
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
                        with: describe_pack(&other.title()),
                    });
                }
            }
        }
        Ok(())
    }

    /// Returns the names of the prompts and parts, with whether each is a prompt.
    fn names(&self) -> impl Iterator<Item = (bool, &str)> {
        let prompts = self.prompts.iter().map(|(name, _)| (true, &**name));
        prompts.chain(self.parts.iter().map(|part| (false, part.name())))
    }

    fn title(&self) -> Arc<str> {
        self.to_string().into()
    }
}

/// The name and the version.
impl std::fmt::Display for Pack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.version {
            Some(version) => write!(f, "{} {version}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// The parts of an agent that packs add to.
pub(crate) struct Loading<'a> {
    pub(crate) tools: &'a mut Toolset,
    pub(crate) hooks: &'a mut Vec<Hook>,
    pub(crate) grants: &'a mut Vec<String>,
    pub(crate) instructions: &'a mut Arc<str>,
}

fn describe_pack(pack: &str) -> Arc<str> {
    format!("pack `{pack}`").into()
}

/// Owner of a name that no pack brought.
const AGENT: &str = "the agent itself";

/// Adds the contents of packs to the parts of an agent.
pub(crate) fn load(packs: Vec<Pack>, into: Loading<'_>) -> Result<(), BuildError> {
    Pack::check_all(&packs)?;
    let Loading { tools, hooks, grants, instructions } = into;
    // The names of tools and hooks from packs, each with its pack.
    let mut brought: Vec<(Arc<str>, Arc<str>)> = Vec::new();
    for pack in packs {
        let title = pack.title();
        let clash = |name: &str, brought: &[(Arc<str>, Arc<str>)]| {
            let with = brought.iter().find(|(there, _)| &**there == name);
            let with = with.map_or_else(|| AGENT.into(), |(_, pack)| describe_pack(pack));
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
        for hook in pack.hooks.into_iter().map(Hook::from_code) {
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
