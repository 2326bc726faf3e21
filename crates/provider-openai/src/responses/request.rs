//! What is sent.

use layer0::ToolSpec;
use layer0::message::{Message, ToolCall};
use provider::{ModelRequest, ProviderError};
use provider_http::sendable_arguments;
use serde::Serialize;
use serde_json::Value;

/// The smallest output limit that the protocol accepts. What is left of a budget may be less; a
/// refused request would hide that the budget is used up.
const MIN_OUTPUT_TOKENS: u32 = 16;

#[derive(Serialize)]
pub(crate) struct ResponsesRequest<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<String>,
    input: Vec<InputItem<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<WireTool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<Reasoning>,
    /// Nothing is kept at the provider, which keeps everything by default.
    store: bool,
    stream: bool,
}

#[derive(Serialize)]
struct Reasoning {
    summary: &'static str,
}

/// A part of the conversation. Items carry no id: one that was not stored cannot be looked up, and
/// a call whose id is known is refused without the reasoning that led to it.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum InputItem<'a> {
    Message {
        role: &'static str,
        content: &'a str,
    },
    FunctionCall {
        call_id: &'a str,
        name: &'a str,
        /// JSON in a string, as the protocol wants it.
        arguments: String,
    },
    FunctionCallOutput {
        call_id: &'a str,
        output: &'a str,
    },
}

#[derive(Serialize)]
struct WireTool<'a> {
    r#type: &'static str,
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
    /// Strict schemas are a subset that not every tool's is in, and the default here.
    strict: bool,
}

impl<'a> ResponsesRequest<'a> {
    pub(crate) fn whole(
        model: &'a str,
        request: &'a ModelRequest,
        reasoning_summaries: bool,
    ) -> Result<Self, ProviderError> {
        let messages = request.messages.messages();
        // What the conversation begins with are its instructions; a system message further on
        // keeps its place.
        let instructions: Vec<&str> = messages
            .iter()
            .map_while(|message| match &**message {
                Message::System { content } => Some(&**content),
                _ => None,
            })
            .collect();
        let mut input = Vec::with_capacity(messages.len());
        for message in messages.iter().skip(instructions.len()) {
            push_items(&mut input, message)?;
        }
        let limit = request.settings.max_output_tokens;
        Ok(Self {
            model,
            instructions: (!instructions.is_empty()).then(|| instructions.join("\n\n")),
            input,
            tools: request.tools.iter().map(wire_tool).collect(),
            temperature: request.settings.temperature,
            max_output_tokens: limit.map(|limit| limit.max(MIN_OUTPUT_TOKENS)),
            reasoning: reasoning_summaries.then_some(Reasoning { summary: "auto" }),
            store: false,
            stream: false,
        })
    }

    pub(crate) fn streamed(self) -> Self {
        Self { stream: true, ..self }
    }
}

fn push_items<'a>(
    input: &mut Vec<InputItem<'a>>,
    message: &'a Message,
) -> Result<(), ProviderError> {
    match message {
        Message::System { content } => input.push(InputItem::Message { role: "system", content }),
        Message::User { content } => input.push(InputItem::Message { role: "user", content }),
        Message::Assistant { content, tool_calls } => {
            if !content.is_empty() || tool_calls.is_empty() {
                input.push(InputItem::Message { role: "assistant", content });
            }
            input.extend(tool_calls.iter().map(wire_call));
        }
        // The protocol has no mark for a failed call; its text says that it failed.
        Message::Tool { tool_call_id, content, is_error: _ } => {
            let call_id = tool_call_id.as_str();
            input.push(InputItem::FunctionCallOutput { call_id, output: content });
        }
        _ => return Err(ProviderError::invalid_request("a kind of message it cannot send", None)),
    }
    Ok(())
}

fn wire_call(call: &ToolCall) -> InputItem<'_> {
    InputItem::FunctionCall {
        call_id: call.id.as_str(),
        name: &call.name,
        arguments: sendable_arguments(&call.arguments).to_string(),
    }
}

fn wire_tool(tool: &ToolSpec) -> WireTool<'_> {
    WireTool {
        r#type: "function",
        name: &tool.name,
        description: &tool.description,
        parameters: &tool.schema,
        strict: false,
    }
}
