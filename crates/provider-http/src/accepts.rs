//! Limits of endpoints beyond their protocols, as data.

mod call_ids;
mod input_schema;
mod references;
mod schema_draft;
mod turns;

use layer0::ToolSpec;
use layer0::message::Transcript;

pub use call_ids::CallIds;
pub use turns::Turns;

pub(crate) use call_ids::fit_call_ids;
pub(crate) use input_schema::{KeyAliases, fit_tool};
pub(crate) use turns::fit_turns;

/// The limits of an endpoint: ids of calls, order of messages, tools. A request is fitted to them before
/// its protocol writes it, so that a conversation that began elsewhere can continue here.
///
/// Schemas of tools need no limit of their own: every endpoint is sent what all of them take. A call is held
/// against the tool's own schema before it runs.
///
/// ```
/// use backstop_provider_http::{Accepts, CallIds, Turns};
///
/// // Ids of nine letters and digits, and a `user` message only behind one of the assistant.
/// const MISTRAL: Accepts = Accepts::everything().call_ids(CallIds::exactly(9)).turns(Turns::Alternate);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Accepts {
    /// Ids of tool calls.
    pub call_ids: CallIds,
    /// Order of messages.
    pub turns: Turns,
    /// Whether properties of a tool's input have names of letters, digits, `_`, `.` and `-` only.
    pub plain_keys: bool,
    /// Whether a conversation with calls is refused without the tools that were called.
    pub needs_called_tools: bool,
}

impl Accepts {
    /// Makes limits that nothing exceeds.
    #[must_use]
    pub const fn everything() -> Self {
        Self {
            call_ids: CallIds::any(),
            turns: Turns::Free,
            plain_keys: false,
            needs_called_tools: false,
        }
    }

    /// Limits the ids of tool calls.
    #[must_use]
    pub const fn call_ids(mut self, ids: CallIds) -> Self {
        self.call_ids = ids;
        self
    }

    /// Limits the order of messages.
    #[must_use]
    pub const fn turns(mut self, turns: Turns) -> Self {
        self.turns = turns;
        self
    }

    /// Takes property names of up to 64 letters, digits, `_`, `.` and `-` only.
    #[must_use]
    pub const fn plain_keys(mut self) -> Self {
        self.plain_keys = true;
        self
    }

    /// Takes a conversation with calls only beside the tools that were called.
    #[must_use]
    pub const fn needs_called_tools(mut self) -> Self {
        self.needs_called_tools = true;
        self
    }
}

/// Returns a description of each tool that was called in a conversation, for a request that offers none.
pub(crate) fn called_tools(messages: &Transcript) -> Vec<ToolSpec> {
    let calls = messages.messages().iter().flat_map(|message| match &**message {
        layer0::message::Message::Assistant { tool_calls, .. } => &**tool_calls,
        _ => &[],
    });
    let names: std::collections::BTreeSet<&str> = calls.map(|call| &*call.name).collect();
    let schema = serde_json::json!({ "type": "object" });
    names
        .into_iter()
        .map(|name| ToolSpec::new(name, "No longer available.", schema.clone()))
        .collect()
}
