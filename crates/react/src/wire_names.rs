//! Tool names in the form that providers accept.
//!
//! Providers accept letters, digits, `_` and `-`, and refuse a request with any other tool name. Names in a request are
//! therefore mapped right before it is sent, and names in an answer are mapped back right after; everything else,
//! including the record, uses the original names.

use std::borrow::Cow;
use std::sync::Arc;

use backstop_provider::{ModelRequest, ModelResponse, ToolChoice};
use layer0::ToolSpec;
use layer0::message::{Message, ToolCall, Transcript};
use layer0::name::wire_name;

/// Maps the names in a request. Returns the original tools.
pub(crate) fn map_request(request: &mut ModelRequest) -> Arc<[ToolSpec]> {
    let tools = Arc::clone(&request.tools);
    if tools.iter().any(|tool| is_mapped(&tool.name)) {
        request.tools = tools.iter().map(|tool| mapped_tool(tool.clone())).collect();
    }
    if let Some(ToolChoice::Tool(name)) = &mut request.settings.tool_choice
        && is_mapped(name)
    {
        *name = wire_name(name).into();
    }
    let messages = request.messages.messages();
    if messages.iter().any(|message| has_mapped(message)) {
        let mut mapped = Transcript::default();
        for message in messages {
            mapped.push_shared(mapped_message(message));
        }
        request.messages = mapped;
    }
    tools
}

/// Restores the original tool names in the calls of an answer.
pub(crate) fn map_response(response: &mut ModelResponse, tools: &[ToolSpec]) {
    let own_name = |name: &str| {
        let is_known = tools.iter().any(|tool| *tool.name == *name);
        let tool = tools.iter().find(|tool| !is_known && wire_name(&tool.name) == name)?;
        Some(Arc::clone(&tool.name))
    };
    if response.tool_calls.iter().all(|call| own_name(&call.name).is_none()) {
        return;
    }
    for call in Arc::make_mut(&mut response.tool_calls) {
        if let Some(name) = own_name(&call.name) {
            call.name = name;
        }
    }
}

fn is_mapped(name: &str) -> bool {
    matches!(wire_name(name), Cow::Owned(_))
}

fn has_mapped(message: &Message) -> bool {
    match message {
        Message::Assistant { tool_calls, .. } => {
            tool_calls.iter().any(|call| is_mapped(&call.name))
        }
        _ => false,
    }
}

fn mapped_tool(mut tool: ToolSpec) -> ToolSpec {
    if is_mapped(&tool.name) {
        tool.name = wire_name(&tool.name).into();
    }
    tool
}

fn mapped_message(message: &Arc<Message>) -> Arc<Message> {
    if !has_mapped(message) {
        return Arc::clone(message);
    }
    let mut message = Message::clone(message);
    if let Message::Assistant { tool_calls, .. } = &mut message {
        let mapped = |call: &ToolCall| {
            ToolCall::new(call.id.clone(), wire_name(&call.name), call.arguments.clone())
        };
        *tool_calls = tool_calls.iter().map(mapped).collect();
    }
    message.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    use layer0::message::StopReason;
    use layer0::usage::TokenUsage;
    use serde_json::json;

    fn call(name: &str) -> ToolCall {
        ToolCall::new("c1", name, json!({}))
    }

    fn asked(names: &[&str]) -> ModelRequest {
        let mut messages = Transcript::default();
        messages.push(Message::user("x"));
        messages.push(Message::assistant("", [call("web.search"), call("sql")].into()));
        let mut request = ModelRequest::new(messages);
        let spec = |name: &&str| ToolSpec::new(*name, "x", json!({"type": "object"}));
        request.tools = names.iter().map(spec).collect();
        request
    }

    /// Spec: T15
    #[test]
    fn requests_carry_names_that_providers_take() {
        let mut request = asked(&["web.search", "sql", "süche x", "2fa"]);
        let own = map_request(&mut request);
        let names =
            |tools: &[ToolSpec]| tools.iter().map(|t| t.name.to_string()).collect::<Vec<_>>();
        assert_eq!(names(&request.tools), ["web_search", "sql", "s_che_x", "_2fa"]);
        assert_eq!(names(&own), ["web.search", "sql", "süche x", "2fa"]);
        let Message::Assistant { tool_calls, .. } = &*request.messages.messages()[1] else {
            panic!("the second message is the assistant's");
        };
        assert_eq!((&*tool_calls[0].name, &*tool_calls[1].name), ("web_search", "sql"));
    }

    /// Spec: T15
    #[test]
    fn answers_carry_the_names_of_tools() {
        let tools = map_request(&mut asked(&["web.search", "sql", "süche x"]));
        for (said, own) in [
            ("web_search", "web.search"),
            ("web.search", "web.search"),
            ("s_che_x", "süche x"),
            ("sql", "sql"),
            ("nothing", "nothing"),
        ] {
            let mut response = ModelResponse::new(
                "",
                [call("sql"), call(said)].into(),
                StopReason::ToolUse,
                Some(TokenUsage::default()),
            );
            map_response(&mut response, &tools);
            assert_eq!(
                (&*response.tool_calls[0].name, &*response.tool_calls[1].name),
                ("sql", own)
            );
        }
    }

    /// Spec: T15
    #[test]
    fn a_request_that_needs_no_mapping_is_shared() {
        let mut request = ModelRequest::new(Transcript::default());
        request.tools = [ToolSpec::new("sql", "x", json!({"type": "object"}))].into();
        assert!(Arc::ptr_eq(&map_request(&mut request), &request.tools));
    }
}
