//! Limits of endpoints beyond their protocols, as data.

mod call_ids;
mod input_schema;
mod references;
mod schema_draft;
mod turns;

use layer0::ToolSpec;
use layer0::message::Transcript;

pub use call_ids::CallIds;
pub use turns::MessageOrder;

pub(crate) use call_ids::fit_call_ids;
pub(crate) use input_schema::{KeyAliases, fit_tool};
pub(crate) use turns::fit_turns;

/// Limits of an endpoint: tool call ids, message order and tools.
///
/// A request is fitted to them before the protocol encodes it, so that a conversation that began at
/// another provider can continue here.
///
/// Tool schemas have hardly any limit of their own: every endpoint is sent a form that all of them accept.
/// The arguments of a call are validated against the tool's own schema before it runs.
///
/// ```
/// use backstop_provider_http::{Accepts, CallIds, MessageOrder};
///
/// // Ids of nine letters and digits, and a `user` message only behind one of the assistant.
/// const MISTRAL: Accepts = Accepts::everything().call_ids(CallIds::exactly(9)).turns(MessageOrder::Alternate);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Accepts {
    /// Accepted ids of tool calls.
    pub call_ids: CallIds,
    /// Accepted order of messages.
    pub turns: MessageOrder,
    /// Whether property names of a tool's input may only have letters, digits, `_`, `.` and `-`.
    pub plain_keys: bool,
    /// Whether the input schema of a tool without arguments may have no `properties`; OpenAI requires them, and Gemini
    /// refuses empty ones.
    pub no_empty_properties: bool,
    /// Whether a conversation with tool calls is refused without the definitions of the called tools.
    pub needs_called_tools: bool,
}

impl Accepts {
    /// Returns limits that accept every request.
    #[must_use]
    pub const fn everything() -> Self {
        Self {
            call_ids: CallIds::any(),
            turns: MessageOrder::Free,
            plain_keys: false,
            no_empty_properties: false,
            needs_called_tools: false,
        }
    }

    /// Sets the accepted ids of tool calls.
    #[must_use]
    pub const fn call_ids(mut self, ids: CallIds) -> Self {
        self.call_ids = ids;
        self
    }

    /// Sets the accepted order of messages.
    #[must_use]
    pub const fn turns(mut self, turns: MessageOrder) -> Self {
        self.turns = turns;
        self
    }

    /// Restricts property names to at most 64 letters, digits, `_`, `.` and `-`.
    #[must_use]
    pub const fn plain_keys(mut self) -> Self {
        self.plain_keys = true;
        self
    }

    /// Leaves out the `properties` of a tool without arguments.
    #[must_use]
    pub const fn no_empty_properties(mut self) -> Self {
        self.no_empty_properties = true;
        self
    }

    /// Requires the definitions of the called tools in a conversation with tool calls.
    #[must_use]
    pub const fn needs_called_tools(mut self) -> Self {
        self.needs_called_tools = true;
        self
    }
}

/// Returns a placeholder definition of each tool called in a conversation, for a request that offers none.
pub(crate) fn called_tools(messages: &Transcript) -> Vec<ToolSpec> {
    let calls = messages.messages().iter().flat_map(|message| match &**message {
        layer0::message::Message::Assistant { tool_calls, .. } => &**tool_calls,
        _ => &[],
    });
    let names: std::collections::BTreeSet<&str> = calls.map(|call| &*call.name).collect();
    let schema = serde_json::json!({ "type": "object", "properties": {} });
    names
        .into_iter()
        .map(|name| ToolSpec::new(name, "No longer available.", schema.clone()))
        .collect()
}
