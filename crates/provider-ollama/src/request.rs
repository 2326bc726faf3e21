//! What is sent.

use std::borrow::Cow;
use std::collections::BTreeMap;

use layer0::message::{Message, ToolCall};
use layer0::{JsonText, ToolSpec};
use provider::{ModelRequest, ProviderError};
use provider_http::sendable_arguments;
use serde::Serialize;

#[derive(Serialize)]
pub(crate) struct ChatRequest<'a> {
    model: &'a str,
    messages: Vec<WireMessage<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<WireTool<'a>>,
    #[serde(skip_serializing_if = "Options::is_empty")]
    options: Options,
    stream: bool,
    /// Ollama drops the oldest messages of a conversation that is too long, and says nothing, unless
    /// it is told to fail.
    truncate: bool,
    /// The same for an answer that outgrows the context: it ends with `length` instead.
    shift: bool,
}

#[derive(Serialize)]
struct Options {
    #[serde(skip_serializing_if = "Option::is_none")]
    num_ctx: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    num_predict: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
}

impl Options {
    const fn is_empty(&self) -> bool {
        self.num_ctx.is_none() && self.num_predict.is_none() && self.temperature.is_none()
    }
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum WireMessage<'a> {
    System {
        content: &'a str,
    },
    User {
        content: &'a str,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        images: Vec<&'a str>,
    },
    Assistant {
        content: &'a str,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<WireCall<'a>>,
    },
    Tool {
        #[serde(skip_serializing_if = "Option::is_none")]
        tool_name: Option<&'a str>,
        content: &'a str,
    },
}

#[derive(Serialize)]
struct WireCall<'a> {
    function: WireFunction<'a>,
}

#[derive(Serialize)]
struct WireFunction<'a> {
    name: &'a str,
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
        context_tokens: Option<u32>,
        stream: bool,
    ) -> Result<Self, ProviderError> {
        // The protocol has no ids: a result names its tool, and stands in the order of the calls.
        let mut names = BTreeMap::new();
        Ok(Self {
            model,
            messages: request
                .messages
                .messages()
                .iter()
                .map(|message| wire_message(message, &mut names))
                .collect::<Result<_, _>>()?,
            tools: request.tools.iter().map(wire_tool).collect(),
            options: Options {
                num_ctx: context_tokens,
                num_predict: request.settings.max_output_tokens,
                temperature: request.settings.temperature,
            },
            stream,
            truncate: false,
            shift: false,
        })
    }
}

/// `names` are the tools of the calls so far, by the calls' ids.
fn wire_message<'a>(
    message: &'a Message,
    names: &mut BTreeMap<&'a str, &'a str>,
) -> Result<WireMessage<'a>, ProviderError> {
    Ok(match message {
        Message::System { content } => WireMessage::System { content },
        Message::User { content, images } => {
            WireMessage::User { content, images: images.iter().map(|image| &*image.data).collect() }
        }
        Message::Assistant { content, tool_calls, provider_state: _ } => {
            names.extend(tool_calls.iter().map(|call| (call.id.as_str(), &*call.name)));
            WireMessage::Assistant {
                content,
                tool_calls: tool_calls.iter().map(wire_call).collect(),
            }
        }
        // The protocol has no mark for a failed call; its text says that it failed.
        Message::Tool { tool_call_id, content, is_error: _ } => {
            WireMessage::Tool { tool_name: names.get(tool_call_id.as_str()).copied(), content }
        }
        _ => return Err(ProviderError::invalid_request("a kind of message it cannot send", None)),
    })
}

fn wire_call(call: &ToolCall) -> WireCall<'_> {
    let arguments = sendable_arguments(&call.arguments);
    WireCall { function: WireFunction { name: &call.name, arguments } }
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
