//! What is sent.

use std::borrow::Cow;

use layer0::message::{Image, Message, ToolCall};
use layer0::{JsonText, ToolSpec};
use provider::{ModelRequest, ProviderError};
use provider_http::sendable_arguments;
use serde::Serialize;

use crate::own::{as_text, data_url};

/// The field that carries the output limit.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MaxTokens {
    Classic,
    Completion,
}

#[derive(Serialize)]
pub(crate) struct ChatRequest<'a> {
    model: &'a str,
    messages: Vec<WireMessage<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<WireTool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum WireMessage<'a> {
    System {
        content: &'a str,
    },
    User {
        content: UserContent<'a>,
    },
    Assistant {
        content: Option<&'a str>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<WireCall<'a>>,
    },
    Tool {
        tool_call_id: &'a str,
        content: &'a str,
    },
}

/// Text alone is a string, which every endpoint reads.
#[derive(Serialize)]
#[serde(untagged)]
enum UserContent<'a> {
    Text(&'a str),
    Parts(Vec<Part<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    Text { text: &'a str },
    ImageUrl { image_url: ImageUrl },
}

#[derive(Serialize)]
struct ImageUrl {
    url: String,
}

#[derive(Serialize)]
struct WireCall<'a> {
    id: &'a str,
    r#type: &'static str,
    function: WireFunction<'a>,
}

#[derive(Serialize)]
struct WireFunction<'a> {
    name: &'a str,
    /// JSON in a string, as the protocol wants it.
    #[serde(serialize_with = "as_text")]
    arguments: Cow<'a, JsonText>,
}

#[derive(Serialize)]
struct WireTool<'a> {
    r#type: &'static str,
    function: WireToolFunction<'a>,
}

#[derive(Serialize)]
struct WireToolFunction<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a JsonText,
}

impl<'a> ChatRequest<'a> {
    pub(crate) fn new(
        model: &'a str,
        request: &'a ModelRequest,
        field: MaxTokens,
        stream: bool,
    ) -> Result<Self, ProviderError> {
        let limit = request.settings.max_output_tokens;
        let (max_tokens, max_completion_tokens) = match field {
            MaxTokens::Classic => (limit, None),
            MaxTokens::Completion => (None, limit),
        };
        Ok(Self {
            model,
            messages: request
                .messages
                .messages()
                .iter()
                .map(|message| wire_message(message))
                .collect::<Result<_, _>>()?,
            tools: request.tools.iter().map(wire_tool).collect(),
            temperature: request.settings.temperature,
            max_tokens,
            max_completion_tokens,
            stream,
            stream_options: stream.then_some(StreamOptions { include_usage: true }),
        })
    }
}

fn wire_message(message: &Message) -> Result<WireMessage<'_>, ProviderError> {
    Ok(match message {
        Message::System { content } => WireMessage::System { content },
        Message::User { content, images } => {
            WireMessage::User { content: user_content(content, images) }
        }
        Message::Assistant { content, tool_calls, provider_state: _ } => WireMessage::Assistant {
            // A message that only calls tools has no content, as OpenAI itself writes it.
            content: (!content.is_empty() || tool_calls.is_empty()).then_some(content),
            tool_calls: tool_calls.iter().map(wire_call).collect(),
        },
        // The protocol has no mark for a failed call; its text says that it failed.
        Message::Tool { tool_call_id, content, is_error: _ } => {
            WireMessage::Tool { tool_call_id: tool_call_id.as_str(), content }
        }
        _ => return Err(ProviderError::invalid_request("a kind of message it cannot send", None)),
    })
}

fn user_content<'a>(text: &'a str, images: &'a [Image]) -> UserContent<'a> {
    if images.is_empty() {
        return UserContent::Text(text);
    }
    let image = |image| Part::ImageUrl { image_url: ImageUrl { url: data_url(image) } };
    UserContent::Parts([Part::Text { text }].into_iter().chain(images.iter().map(image)).collect())
}

fn wire_call(call: &ToolCall) -> WireCall<'_> {
    let arguments = sendable_arguments(&call.arguments);
    WireCall {
        id: call.id.as_str(),
        r#type: "function",
        function: WireFunction { name: &call.name, arguments },
    }
}

fn wire_tool(tool: &ToolSpec) -> WireTool<'_> {
    WireTool {
        r#type: "function",
        function: WireToolFunction {
            name: &tool.name,
            description: &tool.description,
            parameters: &tool.schema,
        },
    }
}
