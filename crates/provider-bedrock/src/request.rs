//! Encoding of requests.

use std::borrow::Cow;
use std::sync::Arc;

use backstop_provider::{ModelRequest, OutputSchema, ProviderError, ReasoningEffort, ToolChoice};
use backstop_provider_http::{AnswerPiece, Endpoint, claude_form, pieces, sendable_arguments};
use layer0::message::{Image, Message, ToolCall};
use layer0::{JsonText, ToolSpec};
use serde::Serialize;

use crate::served::{AnsweredCalls, KeptBlock};

/// The body of both paths; the path determines whether the answer is streamed.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConverseRequest<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<MarkedPart<BedrockText<'a>>>,
    messages: Vec<BedrockMessage<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inference_config: Option<InferenceConfig<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_config: Option<BedrockToolConfig<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<BedrockOutputConfig<'a>>,
}

/// A part, or the mark after a prefix to cache for the next request:
/// <https://docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html>.
#[derive(Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
enum MarkedPart<T> {
    Mark { cache_point: CachePoint },
    Part(T),
}

#[derive(Serialize)]
struct CachePoint {
    r#type: &'static str,
}

impl<T> MarkedPart<T> {
    const fn mark() -> Self {
        Self::Mark { cache_point: CachePoint { r#type: "default" } }
    }
}

/// Encodes parts, with a mark after them if they are to be cached.
fn with_cache_mark<T>(parts: impl IntoIterator<Item = T>, caches: bool) -> Vec<MarkedPart<T>> {
    let mut parts: Vec<_> = parts.into_iter().map(MarkedPart::Part).collect();
    if caches && !parts.is_empty() {
        parts.push(MarkedPart::mark());
    }
    parts
}

#[derive(Serialize)]
struct BedrockText<'a> {
    text: &'a str,
}

#[derive(Serialize)]
struct BedrockMessage<'a> {
    role: BedrockRole,
    content: Vec<MarkedPart<BedrockBlock<'a>>>,
}

#[derive(Serialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "lowercase")]
enum BedrockRole {
    Assistant,
    User,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum BedrockBlock<'a> {
    Image(WireImage<'a>),
    Text(&'a str),
    ToolUse(BedrockCall<'a>),
    ToolResult(BedrockToolResult<'a>),
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
struct BedrockCall<'a> {
    tool_use_id: &'a str,
    name: &'a str,
    input: Cow<'a, JsonText>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BedrockToolResult<'a> {
    tool_use_id: &'a str,
    content: Vec<BedrockResultPart<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum BedrockResultPart<'a> {
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
struct BedrockOutputConfig<'a> {
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
struct BedrockToolConfig<'a> {
    tools: Vec<MarkedPart<BedrockTool<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<BedrockToolChoice<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum BedrockToolChoice<'a> {
    Any {},
    Auto {},
    Tool { name: &'a str },
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BedrockTool<'a> {
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
        let mut conversation = BedrockConversation::new(endpoint);
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
        let output = BedrockOutputConfig {
            effort: settings.reasoning_effort,
            text_format: request.output.as_ref().and_then(|it| text_format(endpoint.model(), it)),
        };
        let choice = settings.tool_choice.as_ref().filter(|_| !request.tools.is_empty());
        let tool_choice = choice.map(wire_choice).transpose()?;
        let tools = with_cache_mark(request.tools.iter().map(wire_tool), caches);
        if caches && let Some(last) = conversation.messages.last_mut() {
            last.content.push(MarkedPart::mark());
        }
        Ok(Self {
            system: with_cache_mark(conversation.system, caches),
            messages: conversation.messages,
            inference_config: (config != InferenceConfig::default()).then_some(config),
            // The endpoint refuses an empty list.
            tool_config: (!tools.is_empty()).then_some(BedrockToolConfig { tools, tool_choice }),
            output_config: (output != BedrockOutputConfig::default()).then_some(output),
        })
    }
}

struct BedrockConversation<'a> {
    endpoint: &'a Endpoint,
    system: Vec<BedrockText<'a>>,
    messages: Vec<BedrockMessage<'a>>,
    /// Whether the last message has tool results, and the next result belongs to it.
    collects_results: bool,
}

impl<'a> BedrockConversation<'a> {
    const fn new(endpoint: &'a Endpoint) -> Self {
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
                    .then_some(BedrockBlock::Text(content));
                self.push(BedrockRole::User, images.chain(text).collect());
            }
            Message::Assistant { content, tool_calls, provider_state } => {
                let kept = self.endpoint.state_parts(provider_state.as_ref());
                let answered = AnsweredCalls::new(kept);
                let pieces = pieces(content, tool_calls.len(), kept).into_iter();
                let blocks: Vec<_> = pieces
                    .filter(|piece| !piece.is_blank())
                    .filter_map(|piece| match piece {
                        AnswerPiece::Text(text) => Some(BedrockBlock::Text(text)),
                        AnswerPiece::Call(place) => Some(tool_use(&tool_calls[place])),
                        AnswerPiece::Kept(part) => answered.block(part).map(BedrockBlock::from),
                    })
                    .collect();
                if !blocks.is_empty() {
                    self.push(BedrockRole::Assistant, blocks);
                }
            }
            Message::Tool { tool_call_id, content, images, is_error } => {
                // The endpoint refuses blank texts.
                let text = (!content.trim().is_empty()).then_some(BedrockResultPart::Text(content));
                // The text mentions the images.
                let shown = if shows_images(self.endpoint.model()) { &**images } else { &[] };
                let images = shown.iter().map(|image| BedrockResultPart::Image(wire_image(image)));
                self.take_result(BedrockBlock::ToolResult(BedrockToolResult {
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

    fn push(&mut self, role: BedrockRole, content: Vec<BedrockBlock<'a>>) {
        let content = with_cache_mark(content, false);
        self.messages.push(BedrockMessage { role, content });
        self.collects_results = false;
    }

    /// Adds a result to the message with the results of its turn: spread over several, they are refused.
    fn take_result(&mut self, result: BedrockBlock<'a>) {
        match self.messages.last_mut() {
            Some(message) if self.collects_results => {
                message.content.push(MarkedPart::Part(result));
            }
            Some(_) | None => {
                let content = with_cache_mark([result], false);
                self.messages.push(BedrockMessage { role: BedrockRole::User, content });
                self.collects_results = true;
            }
        }
    }
}

impl From<KeptBlock> for BedrockBlock<'_> {
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

fn image(image: &Image) -> BedrockBlock<'_> {
    BedrockBlock::Image(wire_image(image))
}

fn wire_image(image: &Image) -> WireImage<'_> {
    let (_, format) = image.media_type.split_once('/').unwrap_or_default();
    WireImage { format, source: Bytes { bytes: &image.data } }
}

fn tool_use(call: &ToolCall) -> BedrockBlock<'_> {
    BedrockBlock::ToolUse(BedrockCall {
        tool_use_id: call.id.as_str(),
        name: &call.name,
        input: sendable_arguments(&call.arguments),
    })
}

fn text(content: &str) -> Option<BedrockText<'_>> {
    (!content.trim().is_empty()).then_some(BedrockText { text: content })
}

/// Returns the schema to send; only Claude's models enforce one.
pub(crate) fn fit_output_schema(model: &str, output: &OutputSchema) -> Option<JsonText> {
    claude_form(model, output).filter(|_| model.contains("anthropic.claude"))
}

fn text_format<'a>(model: &str, output: &'a OutputSchema) -> Option<TextFormat<'a>> {
    let schema = fit_output_schema(model, output)?.get().to_owned();
    let json_schema = NamedSchema { name: &output.name, schema };
    Some(TextFormat { r#type: "json_schema", structure: Structure { json_schema } })
}

fn wire_choice(choice: &ToolChoice) -> Result<BedrockToolChoice<'_>, ProviderError> {
    Ok(match choice {
        ToolChoice::Auto => BedrockToolChoice::Auto {},
        ToolChoice::Required => BedrockToolChoice::Any {},
        ToolChoice::Tool(name) => BedrockToolChoice::Tool { name },
        _ => return Err(ProviderError::invalid_request("a tool choice it cannot send", None)),
    })
}

fn wire_tool(tool: &ToolSpec) -> BedrockTool<'_> {
    BedrockTool {
        tool_spec: WireSpec {
            name: &tool.name,
            description: &tool.description,
            input_schema: InputSchema { json: &tool.schema },
        },
    }
}
