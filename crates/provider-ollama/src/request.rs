//! Encoding of requests.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use backstop_provider::{ModelRequest, ProviderError, ReasoningEffort};
use backstop_provider_http::{Endpoint, kept_field, sendable_arguments};
use layer0::message::{Message, ToolCall};
use layer0::{JsonText, ToolSpec};
use serde::Serialize;

/// The field of thinking, in an answer and in its kept parts.
pub(crate) const THINKING: &str = "thinking";

#[derive(Serialize)]
pub(crate) struct OllamaRequest<'a> {
    model: &'a str,
    messages: Vec<OllamaMessage<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<OllamaTool<'a>>,
    #[serde(skip_serializing_if = "OllamaOptions::is_empty")]
    options: OllamaOptions<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    think: Option<Think>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<&'a JsonText>,
    stream: bool,
    /// Whether Ollama silently drops the oldest messages of a conversation that is too long, as by
    /// default, or fails.
    truncate: bool,
    /// Whether it drops them for an answer that outgrows the context, or ends the answer with `length`.
    shift: bool,
}

/// A level of thinking, or none.
#[derive(Serialize)]
#[serde(untagged)]
enum Think {
    Level(ReasoningEffort),
    Not(bool),
}

impl From<ReasoningEffort> for Think {
    fn from(effort: ReasoningEffort) -> Self {
        if effort == ReasoningEffort::None { Self::Not(false) } else { Self::Level(effort) }
    }
}

#[derive(Serialize, PartialEq, Default)]
struct OllamaOptions<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    num_ctx: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    num_predict: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f32>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    stop: &'a [Arc<str>],
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<i64>,
}

impl OllamaOptions<'_> {
    fn is_empty(&self) -> bool {
        *self == OllamaOptions::default()
    }
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum OllamaMessage<'a> {
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
        /// The thinking that led to the calls, which templates of reasoning models repeat.
        #[serde(skip_serializing_if = "Option::is_none")]
        thinking: Option<JsonText>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<OllamaCall<'a>>,
    },
    Tool {
        #[serde(skip_serializing_if = "Option::is_none")]
        tool_name: Option<&'a str>,
        content: &'a str,
    },
}

#[derive(Serialize)]
struct OllamaCall<'a> {
    function: OllamaFunction<'a>,
}

#[derive(Serialize)]
struct OllamaFunction<'a> {
    name: &'a str,
    arguments: Cow<'a, JsonText>,
}

#[derive(Serialize)]
struct OllamaTool<'a> {
    r#type: &'static str,
    function: OllamaToolFunction<'a>,
}

#[derive(Serialize)]
struct OllamaToolFunction<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a JsonText,
}

impl<'a> OllamaRequest<'a> {
    pub(crate) fn new(
        endpoint: &'a Endpoint,
        request: &'a ModelRequest,
        context_tokens: Option<u32>,
        stream: bool,
    ) -> Result<Self, ProviderError> {
        // The protocol has no ids: results name their tools, in the order of the calls.
        let mut names = BTreeMap::new();
        let settings = &request.settings;
        let output = request.output.as_ref().filter(|_| request.tools.is_empty());
        Ok(Self {
            model: endpoint.model(),
            messages: request
                .messages
                .messages()
                .iter()
                .map(|message| wire_message(message, endpoint, &mut names))
                .collect::<Result<_, _>>()?,
            tools: request.tools.iter().map(wire_tool).collect(),
            options: OllamaOptions {
                num_ctx: context_tokens,
                num_predict: settings.max_output_tokens,
                temperature: settings.temperature,
                top_p: settings.top_p,
                stop: &settings.stop,
                seed: settings.seed,
            },
            think: settings.reasoning_effort.map(Think::from),
            format: output.map(|output| &output.schema),
            stream,
            truncate: false,
            shift: false,
        })
    }
}

/// Encodes a message. `names` are the tools of the calls so far, by the calls' ids.
fn wire_message<'a>(
    message: &'a Message,
    endpoint: &Endpoint,
    names: &mut BTreeMap<&'a str, &'a str>,
) -> Result<OllamaMessage<'a>, ProviderError> {
    Ok(match message {
        Message::System { content } => OllamaMessage::System { content },
        Message::User { content, images } => OllamaMessage::User {
            content,
            images: images.iter().map(|image| &*image.data).collect(),
        },
        Message::Assistant { content, tool_calls, provider_state } => {
            let kept = endpoint.state_parts(provider_state.as_ref());
            names.extend(tool_calls.iter().map(|call| (call.id.as_str(), &*call.name)));
            OllamaMessage::Assistant {
                content,
                thinking: kept.iter().find_map(|part| kept_field(&part.data, THINKING)),
                tool_calls: tool_calls.iter().map(wire_call).collect(),
            }
        }
        // The protocol has neither a mark for failed calls nor images of tools; the text mentions both.
        Message::Tool { tool_call_id, content, images: _, is_error: _ } => {
            OllamaMessage::Tool { tool_name: names.get(tool_call_id.as_str()).copied(), content }
        }
        _ => return Err(ProviderError::invalid_request("a kind of message it cannot send", None)),
    })
}

fn wire_call(call: &ToolCall) -> OllamaCall<'_> {
    let arguments = sendable_arguments(&call.arguments);
    OllamaCall { function: OllamaFunction { name: &call.name, arguments } }
}

fn wire_tool(tool: &ToolSpec) -> OllamaTool<'_> {
    OllamaTool {
        r#type: "function",
        function: OllamaToolFunction {
            name: &tool.name,
            description: &tool.description,
            parameters: &tool.schema,
        },
    }
}
