//! Encoding of requests.

use std::borrow::Cow;
use std::sync::Arc;

use backstop_provider::{ModelRequest, OutputSchema, ProviderError, ReasoningEffort, ToolChoice};
use backstop_provider_http::{Endpoint, Piece, claude_form, pieces, sendable_arguments};
use layer0::message::{Image, Message, ToolCall};
use layer0::{JsonText, ToolSpec};
use serde::Serialize;

use crate::served::{AnsweredCalls, KeptBlock};

/// The body of both paths; the path determines whether the answer is streamed.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConverseRequest<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<Marked<Text<'a>>>,
    messages: Vec<WireMessage<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inference_config: Option<InferenceConfig<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_config: Option<ToolConfig<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<OutputConfig<'a>>,
}

/// A part, or the mark after a prefix to cache for the next request:
/// <https://docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html>.
#[derive(Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
enum Marked<T> {
    Mark { cache_point: CachePoint },
    Part(T),
}

#[derive(Serialize)]
struct CachePoint {
    r#type: &'static str,
}

impl<T> Marked<T> {
    const fn mark() -> Self {
        Self::Mark { cache_point: CachePoint { r#type: "default" } }
    }
}

/// Encodes parts, with a mark after them if they are to be cached.
fn marked<T>(parts: impl IntoIterator<Item = T>, caches: bool) -> Vec<Marked<T>> {
    let mut parts: Vec<_> = parts.into_iter().map(Marked::Part).collect();
    if caches && !parts.is_empty() {
        parts.push(Marked::mark());
    }
    parts
}

#[derive(Serialize)]
struct Text<'a> {
    text: &'a str,
}

#[derive(Serialize)]
struct WireMessage<'a> {
    role: Role,
    content: Vec<Marked<Block<'a>>>,
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
    /// Reasoning as it was received with the answer.
    ReasoningContent(JsonText),
    /// A call of a tool that Bedrock ran itself, as it was received.
    #[serde(rename = "toolUse")]
    ServedCall(JsonText),
    /// Its result, as it was received.
    #[serde(rename = "toolResult")]
    ServedResult(JsonText),
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
    tool_use_id: &'a str,
    name: &'a str,
    input: Cow<'a, JsonText>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireResult<'a> {
    tool_use_id: &'a str,
    content: Vec<ResultPart<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum ResultPart<'a> {
    Image(WireImage<'a>),
    Text(&'a str),
}

#[derive(Serialize, PartialEq, Default)]
#[serde(rename_all = "camelCase")]
struct InferenceConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f32>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    stop_sequences: &'a [Arc<str>],
}

#[derive(Serialize, PartialEq, Default)]
#[serde(rename_all = "camelCase")]
struct OutputConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<ReasoningEffort>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text_format: Option<TextFormat<'a>>,
}

#[derive(Serialize, PartialEq)]
struct TextFormat<'a> {
    r#type: &'static str,
    structure: Structure<'a>,
}

#[derive(Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
struct Structure<'a> {
    json_schema: NamedSchema<'a>,
}

#[derive(Serialize, PartialEq)]
struct NamedSchema<'a> {
    name: &'a str,
    /// JSON in a string, as the protocol requires.
    schema: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolConfig<'a> {
    tools: Vec<Marked<WireTool<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<WireChoice<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum WireChoice<'a> {
    Any {},
    Auto {},
    Tool { name: &'a str },
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
        caches: bool,
    ) -> Result<Self, ProviderError> {
        let mut conversation = Conversation::of(endpoint);
        for message in request.messages.messages() {
            conversation.take(message)?;
        }
        let settings = &request.settings;
        let config = InferenceConfig {
            max_tokens: settings.max_output_tokens,
            temperature: settings.temperature,
            top_p: settings.top_p,
            stop_sequences: &settings.stop,
        };
        let output = OutputConfig {
            effort: settings.reasoning_effort,
            text_format: request.output.as_ref().and_then(|it| text_format(endpoint.model(), it)),
        };
        let choice = settings.tool_choice.as_ref().filter(|_| !request.tools.is_empty());
        let tool_choice = choice.map(wire_choice).transpose()?;
        let tools = marked(request.tools.iter().map(wire_tool), caches);
        if caches && let Some(last) = conversation.messages.last_mut() {
            last.content.push(Marked::mark());
        }
        Ok(Self {
            system: marked(conversation.system, caches),
            messages: conversation.messages,
            inference_config: (config != InferenceConfig::default()).then_some(config),
            // The endpoint refuses an empty list.
            tool_config: (!tools.is_empty()).then_some(ToolConfig { tools, tool_choice }),
            output_config: (output != OutputConfig::default()).then_some(output),
        })
    }
}

struct Conversation<'a> {
    endpoint: &'a Endpoint,
    system: Vec<Text<'a>>,
    messages: Vec<WireMessage<'a>>,
    /// Whether the last message has tool results, and the next result belongs to it.
    collects_results: bool,
}

impl<'a> Conversation<'a> {
    const fn of(endpoint: &'a Endpoint) -> Self {
        Self { endpoint, system: Vec::new(), messages: Vec::new(), collects_results: false }
    }

    fn take(&mut self, message: &'a Message) -> Result<(), ProviderError> {
        match message {
            // The endpoint refuses blank texts.
            Message::System { content } => self.system.extend(text(content)),
            Message::User { content, images } => {
                let images = images.iter().map(image);
                // The endpoint refuses blank texts.
                let text = (!content.trim().is_empty() || images.len() == 0)
                    .then_some(Block::Text(content));
                self.push(Role::User, images.chain(text).collect());
            }
            Message::Assistant { content, tool_calls, provider_state } => {
                let kept = self.endpoint.parts_of(provider_state.as_ref());
                let answered = AnsweredCalls::new(kept);
                let pieces = pieces(content, tool_calls.len(), kept).into_iter();
                let blocks: Vec<_> = pieces
                    .filter(|piece| !piece.is_blank())
                    .filter_map(|piece| match piece {
                        Piece::Text(text) => Some(Block::Text(text)),
                        Piece::Call(place) => Some(tool_use(&tool_calls[place])),
                        Piece::Kept(part) => answered.block(part).map(Block::from),
                    })
                    .collect();
                if !blocks.is_empty() {
                    self.push(Role::Assistant, blocks);
                }
            }
            Message::Tool { tool_call_id, content, images, is_error } => {
                // The endpoint refuses blank texts.
                let text = (!content.trim().is_empty()).then_some(ResultPart::Text(content));
                // The text mentions the images.
                let shown = if shows_images(self.endpoint.model()) { &**images } else { &[] };
                let images = shown.iter().map(|image| ResultPart::Image(wire_image(image)));
                self.take_result(Block::ToolResult(WireResult {
                    tool_use_id: tool_call_id.as_str(),
                    content: text.into_iter().chain(images).collect(),
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

    fn push(&mut self, role: Role, content: Vec<Block<'a>>) {
        let content = marked(content, false);
        self.messages.push(WireMessage { role, content });
        self.collects_results = false;
    }

    /// Adds a result to the message with the results of its turn: spread over several, they are refused.
    fn take_result(&mut self, result: Block<'a>) {
        match self.messages.last_mut() {
            Some(message) if self.collects_results => message.content.push(Marked::Part(result)),
            Some(_) | None => {
                let content = marked([result], false);
                self.messages.push(WireMessage { role: Role::User, content });
                self.collects_results = true;
            }
        }
    }
}

impl From<KeptBlock> for Block<'_> {
    fn from(kept: KeptBlock) -> Self {
        match kept {
            KeptBlock::Call(call) => Self::ServedCall(call),
            KeptBlock::Reasoning(content) => Self::ReasoningContent(content),
            KeptBlock::Result(result) => Self::ServedResult(result),
        }
    }
}

/// Returns whether a model accepts images of tools, as Claude's and Nova's do
/// (<https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ToolResultContentBlock.html>).
fn shows_images(model: &str) -> bool {
    let is_nova = model.contains("amazon.nova") && !model.contains("amazon.nova-micro");
    model.contains("anthropic.claude") || is_nova
}

fn image(image: &Image) -> Block<'_> {
    Block::Image(wire_image(image))
}

fn wire_image(image: &Image) -> WireImage<'_> {
    let (_, format) = image.media_type.split_once('/').unwrap_or_default();
    WireImage { format, source: Bytes { bytes: &image.data } }
}

fn tool_use(call: &ToolCall) -> Block<'_> {
    Block::ToolUse(WireCall {
        tool_use_id: call.id.as_str(),
        name: &call.name,
        input: sendable_arguments(&call.arguments),
    })
}

fn text(content: &str) -> Option<Text<'_>> {
    (!content.trim().is_empty()).then_some(Text { text: content })
}

/// Returns the schema to send; only Claude's models enforce one.
pub(crate) fn form_of(model: &str, output: &OutputSchema) -> Option<JsonText> {
    claude_form(model, output).filter(|_| model.contains("anthropic.claude"))
}

fn text_format<'a>(model: &str, output: &'a OutputSchema) -> Option<TextFormat<'a>> {
    let schema = form_of(model, output)?.get().to_owned();
    let json_schema = NamedSchema { name: &output.name, schema };
    Some(TextFormat { r#type: "json_schema", structure: Structure { json_schema } })
}

fn wire_choice(choice: &ToolChoice) -> Result<WireChoice<'_>, ProviderError> {
    Ok(match choice {
        ToolChoice::Auto => WireChoice::Auto {},
        ToolChoice::Required => WireChoice::Any {},
        ToolChoice::Tool(name) => WireChoice::Tool { name },
        _ => return Err(ProviderError::invalid_request("a tool choice it cannot send", None)),
    })
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
