//! Requests adapted to an endpoint.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use backstop_provider::{ModelRequest, ModelResponse};
use layer0::ToolSpec;
use layer0::message::{Message, ToolCall, Transcript};

use crate::accepts::{Accepts, KeyAliases, called_tools, fit_call_ids, fit_tool, fit_turns};
use crate::endpoint::Endpoint;
use crate::state::keeps_id;

/// A request within the limits of an endpoint, and the names changed for it.
pub(crate) struct Fitted {
    pub(crate) request: ModelRequest,
    tools: Arc<FittedTools>,
}

/// The tools of a run in the form sent. Every turn has the same list.
#[derive(Debug, Default)]
pub(crate) struct FittedTools {
    own: Arc<[ToolSpec]>,
    sent: Arc<[ToolSpec]>,
    /// Renamed properties by the name of the tool.
    aliases: BTreeMap<Arc<str>, KeyAliases>,
}

/// The tools that were adapted last.
#[derive(Debug, Default)]
pub(crate) struct LastTools(Mutex<Arc<FittedTools>>);

impl Fitted {
    pub(crate) fn new(
        request: &ModelRequest,
        accepts: Accepts,
        endpoint: &Endpoint,
        last: &LastTools,
    ) -> Self {
        let mut request = request.clone();
        let tools = last.fit(&request.tools, accepts);
        let messages = request.messages.messages().to_vec();
        let messages = fit_call_ids(messages, accepts.call_ids, |message, id| match message {
            Message::Assistant { provider_state, .. } => {
                keeps_id(endpoint.state_parts(provider_state.as_ref()), id)
            }
            _ => false,
        });
        let messages = fit_turns(messages, accepts.turns).into_iter();
        let mut fitted = Transcript::default();
        messages.for_each(|message| fitted.push_shared(tools.apply_aliases(message)));
        request.messages = fitted;
        request.tools = Arc::clone(&tools.sent);
        if accepts.needs_called_tools && request.tools.is_empty() {
            request.tools = called_tools(&request.messages).into();
            request.settings.tool_choice = None;
        }
        Self { request, tools }
    }

    /// Returns a response with the tools' own property names.
    pub(crate) fn restore(&self, mut response: ModelResponse) -> ModelResponse {
        if let Some(calls) = self.tools.rename_calls(&response.tool_calls, KeyAliases::restore) {
            response.tool_calls = calls;
        }
        response
    }
}

impl LastTools {
    fn fit(&self, own: &Arc<[ToolSpec]>, accepts: Accepts) -> Arc<FittedTools> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&last.own, own) {
            *last = Arc::new(FittedTools::new(own, accepts));
        }
        Arc::clone(&last)
    }
}

impl FittedTools {
    fn new(own: &Arc<[ToolSpec]>, accepts: Accepts) -> Self {
        let mut aliases = BTreeMap::new();
        let sent = own.iter().map(|tool| {
            let (fitted, renamed) = fit_tool(tool, accepts);
            if !renamed.is_empty() {
                aliases.insert(Arc::clone(&tool.name), renamed);
            }
            fitted
        });
        let sent = sent.collect();
        Self { own: Arc::clone(own), sent, aliases }
    }

    /// Returns a message with the property names that the model sees.
    fn apply_aliases(&self, message: Arc<Message>) -> Arc<Message> {
        let Message::Assistant { content, tool_calls, provider_state } = &*message else {
            return message;
        };
        match self.rename_calls(tool_calls, KeyAliases::apply) {
            Some(tool_calls) => Arc::new(Message::Assistant {
                content: content.clone(),
                tool_calls,
                provider_state: provider_state.clone(),
            }),
            None => message,
        }
    }

    fn rename_calls(
        &self,
        calls: &[ToolCall],
        rename: impl Fn(&KeyAliases, &layer0::JsonText) -> layer0::JsonText,
    ) -> Option<Arc<[ToolCall]>> {
        if self.aliases.is_empty() || calls.is_empty() {
            return None;
        }
        let renamed = calls.iter().map(|call| {
            let mut call = call.clone();
            if let Some(aliases) = self.aliases.get(&call.name) {
                call.arguments = rename(aliases, &call.arguments);
            }
            call
        });
        Some(renamed.collect())
    }
}
