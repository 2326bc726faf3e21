//! Errors of building an agent.

use std::borrow::Cow;
use std::sync::Arc;

use backstop_provider::UnsupportedSetting;
use backstop_react_machine::DefinitionError;
use backstop_tool::{GrantError, SchemaError, ToolNotFound, ToolRegistrationError};
use layer0::code;
use layer0::failure::{Effect, Facts, Failure};
use layer0::name::NameError;
use thiserror::Error;

/// The error of building an agent.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A limit of the agent is invalid.
    ///
    /// Retry: never. Effect: none.
    #[error("invalid limit")]
    Definition(#[from] DefinitionError),
    /// Two hooks have this name.
    ///
    /// Retry: never. Effect: none.
    #[error("there is already a hook named `{0}`")]
    DuplicateHook(Arc<str>),
    /// A grant cannot be parsed.
    ///
    /// Retry: never. Effect: none.
    #[error("invalid grant")]
    Grant(#[from] GrantError),
    /// The name of a hook is invalid.
    ///
    /// Retry: never. Effect: none.
    #[error("invalid hook")]
    HookName(#[from] NameError),
    /// A pack cannot be loaded.
    ///
    /// Retry: never. Effect: none.
    #[error("invalid pack")]
    Pack(#[from] PackError),
    /// A tool, hook or provider panicked while it was asked for its description; the panic was caught.
    ///
    /// Retry: never. Effect: none.
    #[error("a part of the agent panicked: {0}")]
    Panicked(String),
    /// A tool takes a state that the agent does not have.
    ///
    /// Retry: never. Effect: none.
    #[error("tool `{tool}` takes a state of type `{wanted}`: give one with `AgentBuilder::state`")]
    #[non_exhaustive]
    MissingState {
        /// The tool.
        tool: Arc<str>,
        /// The type of the missing state.
        wanted: &'static str,
    },
    /// A state store is missing: a tool is called once across runs, or there is a spend limit. The text names what
    /// needs the store.
    ///
    /// Retry: never. Effect: none.
    #[error("{0}: give a state store with `AgentBuilder::store` or `state_store`")]
    MissingStateStore(Arc<str>),
    /// The declared schema of the input or the answer is not a JSON Schema.
    ///
    /// Retry: never. Effect: none.
    #[error("the {of} schema cannot be used")]
    #[non_exhaustive]
    Schema {
        /// `input` or `output`.
        of: &'static str,
        /// The error in the schema.
        source: SchemaError,
    },
    /// The definition contains a secret of the process as one of its words.
    ///
    /// Retry: never. Effect: none.
    #[error("the definition cannot be recorded without its secrets")]
    Secret(#[source] serde_json::Error),
    /// A provider does not support a setting, or its value.
    ///
    /// Retry: never. Effect: none.
    #[error("unsupported setting")]
    Setting(#[from] UnsupportedSetting),
    /// A tool cannot be added.
    ///
    /// Retry: never. Effect: none.
    #[error("invalid tool{}", quote_name(.0.tool()))]
    Tool(#[from] ToolRegistrationError),
    /// The model must call a tool, but the agent has none.
    ///
    /// Retry: never. Effect: none.
    #[error("`tool_choice` is `{0}`, and the agent has no tool")]
    ToolChoice(Arc<str>),
    /// A named tool does not exist.
    ///
    /// Retry: never. Effect: none.
    #[error("unknown tool")]
    ToolNotFound(#[from] ToolNotFound),
    /// A cost budget or a spend limit needs the price of a model, which is unknown.
    ///
    /// Retry: never. Effect: none.
    #[error("`max_cost_usd` needs a price, and model `{model}` of `{provider}` has none")]
    #[non_exhaustive]
    UnknownPrice {
        /// The model.
        model: Arc<str>,
        /// Its provider.
        provider: Arc<str>,
    },
}

/// Returns a name in backticks after a space, or nothing without one.
fn quote_name(name: Option<&str>) -> String {
    name.map(|name| format!(" `{name}`")).unwrap_or_default()
}

impl Failure for BuildError {
    fn facts(&self) -> Facts {
        match self {
            Self::Definition(_)
            | Self::DuplicateHook(_)
            | Self::Grant(_)
            | Self::HookName(_)
            | Self::Pack(_)
            | Self::Panicked(_)
            | Self::MissingState { .. }
            | Self::MissingStateStore(_)
            | Self::Schema { .. }
            | Self::Secret(_)
            | Self::Setting(_)
            | Self::Tool(_)
            | Self::ToolChoice(_)
            | Self::ToolNotFound(_)
            | Self::UnknownPrice { .. } => Facts::never(code::CONFIG_INVALID, Effect::None),
        }
    }
}

/// The error of loading a pack.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PackError {
    /// Something in the pack has a name that is already in use.
    ///
    /// Retry: never. Effect: none.
    #[error("pack `{pack}` brings `{name}`, which {with} has already")]
    #[non_exhaustive]
    Clash {
        /// The pack, with its version.
        pack: Arc<str>,
        /// The tool, hook, prompt or part.
        name: Arc<str>,
        /// The owner of the name: the pack that brought it earlier, or the agent itself.
        with: Arc<str>,
    },
    /// A pack with this name is already loaded.
    ///
    /// Retry: never. Effect: none.
    #[error("pack `{second}` is loaded beside `{first}`")]
    #[non_exhaustive]
    Twice {
        /// The pack loaded before, with its version.
        first: Arc<str>,
        /// The pack loaded second.
        second: Arc<str>,
    },
}

impl Failure for PackError {
    fn facts(&self) -> Facts {
        match self {
            Self::Clash { .. } | Self::Twice { .. } => {
                Facts::never(code::CONFIG_INVALID, Effect::None)
            }
        }
    }

    fn hint(&self) -> Option<Cow<'_, str>> {
        Some("load each pack once, and rename what clashes".into())
    }
}
