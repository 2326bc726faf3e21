//! What is sent.

use std::borrow::Cow;

use layer0::message::{Image, Message, ToolCall};
use layer0::{JsonText, ToolSpec};
use provider::{ModelRequest, ProviderError};
use provider_http::{Endpoint, Piece, pieces, sendable_arguments, sendable_id};
use serde::Serialize;
use serde_json::Value;

/// The body of both paths; the path says whether the answer is streamed.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConverseRequest<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<Text<'a>>,
    messages: Vec<WireMessage<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inference_config: Option<InferenceConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_config: Option<ToolConfig<'a>>,
}

#[derive(Serialize)]
struct Text<'a> {
    text: &'a str,
}

#[derive(Serialize)]
struct WireMessage<'a> {
    role: Role,
    content: Vec<Block<'a>>,
}

#[derive(Serialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Role {
    Assistant,
    User,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Block<'a> {
    Image(WireImage<'a>),
    Text(&'a str),
    ToolUse(WireCall<'a>),
    ToolResult(WireResult<'a>),
    /// As it came with the answer.
    ReasoningContent(&'a Value),
}

#[derive(Serialize)]
struct WireImage<'a> {
    format: &'a str,
    source: Bytes<'a>,
}

#[derive(Serialize)]
struct Bytes<'a> {
    /// In base64.
    bytes: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireCall<'a> {
    tool_use_id: Cow<'a, str>,
    name: &'a str,
    input: Cow<'a, JsonText>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireResult<'a> {
    tool_use_id: Cow<'a, str>,
    content: Vec<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct InferenceConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
}

#[derive(Serialize)]
struct ToolConfig<'a> {
    tools: Vec<WireTool<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireTool<'a> {
    tool_spec: WireSpec<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireSpec<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    input_schema: InputSchema<'a>,
}

#[derive(Serialize)]
struct InputSchema<'a> {
    json: &'a JsonText,
}

impl<'a> ConverseRequest<'a> {
    pub(crate) fn new(
        endpoint: &'a Endpoint,
        request: &'a ModelRequest,
    ) -> Result<Self, ProviderError> {
        let mut conversation = Conversation::of(endpoint);
        for message in request.messages.messages() {
            conversation.take(message)?;
        }
        let max_tokens = request.settings.max_output_tokens;
        let temperature = request.settings.temperature;
        let tools: Vec<_> = request.tools.iter().map(wire_tool).collect();
        Ok(Self {
            system: conversation.system,
            messages: conversation.messages,
            inference_config: (max_tokens.is_some() || temperature.is_some())
                .then_some(InferenceConfig { max_tokens, temperature }),
            // An empty list is refused.
            tool_config: (!tools.is_empty()).then_some(ToolConfig { tools }),
        })
    }
}

struct Conversation<'a> {
    endpoint: &'a Endpoint,
    system: Vec<Text<'a>>,
    messages: Vec<WireMessage<'a>>,
    /// Is the last message one of tool results, which the next result belongs to?
    collects_results: bool,
}

impl<'a> Conversation<'a> {
    const fn of(endpoint: &'a Endpoint) -> Self {
        Self { endpoint, system: Vec::new(), messages: Vec::new(), collects_results: false }
    }

    fn take(&mut self, message: &'a Message) -> Result<(), ProviderError> {
        match message {
            // Empty texts are refused.
            Message::System { content } => self.system.extend(text(content)),
            Message::User { content, images } => {
                let images = images.iter().map(image);
                self.push(Role::User, images.chain([Block::Text(content)]).collect());
            }
            Message::Assistant { content, tool_calls, provider_state } => {
                let kept = self.endpoint.parts_of(provider_state.as_ref());
                let pieces = pieces(content, tool_calls.len(), kept).into_iter();
                let blocks: Vec<_> = pieces
                    .map(|piece| match piece {
                        Piece::Text(text) => Block::Text(text),
                        Piece::Call(place) => tool_use(&tool_calls[place]),
                        Piece::Kept(content) => Block::ReasoningContent(content),
                    })
                    .collect();
                if !blocks.is_empty() {
                    self.push(Role::Assistant, blocks);
                }
            }
            Message::Tool { tool_call_id, content, is_error } => {
                self.take_result(Block::ToolResult(WireResult {
                    tool_use_id: sendable_id(tool_call_id.as_str()),
                    content: text(content).into_iter().collect(),
                    status: is_error.then_some("error"),
                }));
            }
            _ => {
                let why = "a kind of message it cannot send";
                return Err(ProviderError::invalid_request(why, None));
            }
        }
        Ok(())
    }

    /// Adds a message. Roles must take turns, so one of the same role goes on with the last; results
    /// and text are refused in one message.
    fn push(&mut self, role: Role, content: Vec<Block<'a>>) {
        match self.messages.last_mut() {
            Some(last) if last.role == role && !self.collects_results => {
                last.content.extend(content);
            }
            Some(_) | None => self.messages.push(WireMessage { role, content }),
        }
        self.collects_results = false;
    }

    /// Puts the results of one turn into one message: spread over several, they are refused.
    fn take_result(&mut self, result: Block<'a>) {
        match self.messages.last_mut() {
            Some(message) if self.collects_results => message.content.push(result),
            Some(_) | None => {
                self.messages.push(WireMessage { role: Role::User, content: vec![result] });
                self.collects_results = true;
            }
        }
    }
}

fn image(image: &Image) -> Block<'_> {
    let (_, format) = image.media_type.split_once('/').unwrap_or_default();
    Block::Image(WireImage { format, source: Bytes { bytes: &image.data } })
}

fn tool_use(call: &ToolCall) -> Block<'_> {
    Block::ToolUse(WireCall {
        tool_use_id: sendable_id(call.id.as_str()),
        name: &call.name,
        input: sendable_arguments(&call.arguments),
    })
}

fn text(content: &str) -> Option<Text<'_>> {
    (!content.is_empty()).then_some(Text { text: content })
}

fn wire_tool(tool: &ToolSpec) -> WireTool<'_> {
    WireTool {
        tool_spec: WireSpec {
            name: &tool.name,
            description: &tool.description,
            input_schema: InputSchema { json: &tool.schema },
        },
    }
}
