//! Encoding of requests.

mod served;
mod thinking;

use std::borrow::Cow;
use std::sync::Arc;

use backstop_provider::{ModelRequest, ProviderError, ReasoningEffort, ToolChoice};
use backstop_provider_http::{
    AnswerPiece, Endpoint, claude_form, kept_field, pieces, sendable_arguments,
};
use layer0::message::{Image, Message, ToolCall};
use layer0::{JsonText, ToolSpec};
use serde::Serialize;

use self::thinking::is_sent;

/// The output limit of a request that has none; the protocol requires one.
pub const DEFAULT_MAX_TOKENS: u32 = 4_096;

#[derive(Serialize)]
pub(crate) struct MessagesRequest<'a> {
    model: &'a str,
    max_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<System>,
    messages: Vec<AnthropicMessage<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<AnthropicTool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<AnthropicToolChoice<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f32>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    stop_sequences: &'a [Arc<str>],
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<AnthropicOutputConfig>,
    stream: bool,
}

/// The instructions: plain text, or a block if they are marked for caching.
#[derive(Serialize)]
#[serde(untagged)]
enum System {
    Marked([SystemBlock; 1]),
    Plain(String),
}

#[derive(Serialize)]
struct SystemBlock {
    r#type: &'static str,
    text: String,
    cache_control: CacheControl,
}

impl System {
    fn from_text(text: String, caches: bool) -> Option<Self> {
        match caches {
            // The endpoint refuses blank texts.
            _ if text.trim().is_empty() => None,
            false => Some(Self::Plain(text)),
            true => {
                let cache_control = CacheControl::Ephemeral;
                Some(Self::Marked([SystemBlock { r#type: "text", text, cache_control }]))
            }
        }
    }
}

#[derive(Serialize)]
struct AnthropicMessage<'a> {
    role: AnthropicRole,
    content: Vec<AnthropicPart<'a>>,
}

impl AnthropicMessage<'_> {
    /// Marks the last block that can carry a mark; thinking cannot.
    fn mark(&mut self) {
        let marked = self.content.iter_mut().rev().find_map(|part| match part {
            AnthropicPart::Made(marked) => Some(marked),
            AnthropicPart::Kept(_) => None,
        });
        if let Some(marked) = marked {
            marked.cache_control = Some(CacheControl::Ephemeral);
        }
    }
}

/// A part of a message.
#[derive(Serialize)]
#[serde(untagged)]
enum AnthropicPart<'a> {
    /// A block of an earlier answer, exactly as it was received.
    Kept(JsonText),
    Made(MarkedBlock<'a>),
}

/// A block, and whether the prefix up to it is cached for the next request.
#[derive(Serialize)]
struct MarkedBlock<'a> {
    #[serde(flatten)]
    block: AnthropicBlock<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

impl<'a> From<AnthropicBlock<'a>> for AnthropicPart<'a> {
    fn from(block: AnthropicBlock<'a>) -> Self {
        Self::Made(MarkedBlock { block, cache_control: None })
    }
}

/// A mark of a prefix to cache, <https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching>.
#[derive(Serialize, Clone, Copy)]
#[serde(tag = "type", rename_all = "lowercase")]
enum CacheControl {
    Ephemeral,
}

#[derive(Serialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "lowercase")]
enum AnthropicRole {
    Assistant,
    User,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum AnthropicBlock<'a> {
    Text {
        text: &'a str,
    },
    Image {
        source: ImageSource<'a>,
    },
    ToolUse {
        id: &'a str,
        name: &'a str,
        input: Cow<'a, JsonText>,
        #[serde(skip_serializing_if = "Option::is_none")]
        caller: Option<JsonText>,
    },
    ToolResult {
        tool_use_id: &'a str,
        content: ResultContent<'a>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
enum ResultContent<'a> {
    Blocks(Vec<AnthropicBlock<'a>>),
    Text(&'a str),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum ImageSource<'a> {
    Base64 { media_type: &'a str, data: &'a str },
}

#[derive(Serialize)]
struct AnthropicTool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a JsonText,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum AnthropicToolChoice<'a> {
    Any,
    Auto,
    None,
    Tool { name: &'a str },
}

#[derive(Serialize, PartialEq, Default)]
struct AnthropicOutputConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<ReasoningEffort>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<AnthropicFormat>,
}

#[derive(Serialize, PartialEq)]
#[serde(tag = "type", rename_all = "snake_case")]
enum AnthropicFormat {
    JsonSchema { schema: JsonText },
}

impl<'a> MessagesRequest<'a> {
    pub(crate) fn new(
        endpoint: &'a Endpoint,
        request: &'a ModelRequest,
        caches: bool,
        stream: bool,
    ) -> Result<Self, ProviderError> {
        let mut conversation = AnthropicConversation::new(endpoint);
        for message in request.messages.messages() {
            conversation.take(message)?;
        }
        conversation.drop_unanswered();
        conversation.messages.retain(|message| !message.content.is_empty());
        conversation.end_with_user();
        let mut tools: Vec<AnthropicTool<'_>> = request.tools.iter().map(wire_tool).collect();
        if caches {
            // The tools are the same in every run, and the instructions in most; the conversation
            // is sent again with every turn.
            if let Some(tool) = tools.last_mut() {
                tool.cache_control = Some(CacheControl::Ephemeral);
            }
            if let Some(message) = conversation.messages.last_mut() {
                message.mark();
            }
        }
        let settings = &request.settings;
        let form = request.output.as_ref().and_then(|output| claude_form(endpoint.model(), output));
        let config = AnthropicOutputConfig {
            effort: settings.reasoning_effort,
            format: form.map(|schema| AnthropicFormat::JsonSchema { schema }),
        };
        let choice = settings.tool_choice.as_ref().filter(|_| !tools.is_empty());
        Ok(Self {
            model: endpoint.model(),
            max_tokens: settings.max_output_tokens.unwrap_or(DEFAULT_MAX_TOKENS),
            system: System::from_text(conversation.system.join("\n\n"), caches),
            messages: conversation.messages,
            tools,
            tool_choice: choice.map(wire_choice).transpose()?,
            temperature: settings.temperature,
            top_p: settings.top_p,
            stop_sequences: &settings.stop,
            output_config: (config != AnthropicOutputConfig::default()).then_some(config),
            stream,
        })
    }
}

struct AnthropicConversation<'a> {
    endpoint: &'a Endpoint,
    system: Vec<&'a str>,
    messages: Vec<AnthropicMessage<'a>>,
    /// Whether the last message has tool results, and the next result belongs to it.
    collects_results: bool,
}

impl<'a> AnthropicConversation<'a> {
    const fn new(endpoint: &'a Endpoint) -> Self {
        Self { endpoint, system: Vec::new(), messages: Vec::new(), collects_results: false }
    }

    fn take(&mut self, message: &'a Message) -> Result<(), ProviderError> {
        match message {
            Message::System { content } => self.system.push(content),
            Message::User { content, images } => {
                let images = images.iter().map(image);
                // The endpoint refuses empty texts.
                let text = (!content.trim().is_empty() || images.len() == 0)
                    .then_some(AnthropicBlock::Text { text: content });
                self.push(
                    AnthropicRole::User,
                    images.chain(text).map(AnthropicPart::from).collect(),
                );
            }
            Message::Assistant { content, tool_calls, provider_state } => {
                let kept = self.endpoint.state_parts(provider_state.as_ref());
                let pieces = pieces(content, tool_calls.len(), kept).into_iter();
                let mut caller = None;
                let mut parts = Vec::with_capacity(pieces.len());
                for piece in pieces.filter(|piece| !piece.is_blank()) {
                    match piece {
                        AnswerPiece::Text(text) => parts.push(AnthropicBlock::Text { text }.into()),
                        AnswerPiece::Call(place) => {
                            parts.push(tool_use(&tool_calls[place], caller.take()).into());
                        }
                        AnswerPiece::Kept(block) => match kept_field(&block, "caller") {
                            Some(told) => caller = Some(told),
                            None if is_sent(&block, !tool_calls.is_empty(), self.endpoint) => {
                                parts.push(AnthropicPart::Kept(block));
                            }
                            None => {}
                        },
                    }
                }
                if !parts.is_empty() {
                    self.push(AnthropicRole::Assistant, parts);
                }
            }
            Message::Tool { tool_call_id, content, images, is_error } => {
                self.take_result(AnthropicBlock::ToolResult {
                    tool_use_id: tool_call_id.as_str(),
                    content: result_content(content, images),
                    is_error: *is_error,
                });
            }
            _ => {
                let why = "a kind of message it cannot send";
                return Err(ProviderError::invalid_request(why, None));
            }
        }
        Ok(())
    }

    fn push(&mut self, role: AnthropicRole, content: Vec<AnthropicPart<'a>>) {
        self.collects_results = false;
        self.messages.push(AnthropicMessage { role, content });
    }

    /// Adds a result to the message with the results of its turn: spread over several, they are refused.
    fn take_result(&mut self, result: AnthropicBlock<'a>) {
        match self.messages.last_mut() {
            Some(message) if self.collects_results => message.content.push(result.into()),
            Some(_) | None => {
                self.push(AnthropicRole::User, vec![result.into()]);
                self.collects_results = true;
            }
        }
    }
}

fn result_content<'a>(text: &'a str, images: &'a [Image]) -> ResultContent<'a> {
    if images.is_empty() {
        return ResultContent::Text(text);
    }
    // The endpoint refuses empty texts.
    let text = (!text.trim().is_empty()).then_some(AnthropicBlock::Text { text });
    ResultContent::Blocks(text.into_iter().chain(images.iter().map(image)).collect())
}

fn image(image: &Image) -> AnthropicBlock<'_> {
    AnthropicBlock::Image {
        source: ImageSource::Base64 { media_type: &image.media_type, data: &image.data },
    }
}

fn tool_use(call: &ToolCall, caller: Option<JsonText>) -> AnthropicBlock<'_> {
    AnthropicBlock::ToolUse {
        id: call.id.as_str(),
        name: &call.name,
        input: sendable_arguments(&call.arguments),
        caller,
    }
}

fn wire_choice(choice: &ToolChoice) -> Result<AnthropicToolChoice<'_>, ProviderError> {
    Ok(match choice {
        ToolChoice::Auto => AnthropicToolChoice::Auto,
        ToolChoice::None => AnthropicToolChoice::None,
        ToolChoice::Required => AnthropicToolChoice::Any,
        ToolChoice::Tool(name) => AnthropicToolChoice::Tool { name },
        _ => return Err(ProviderError::invalid_request("a tool choice it cannot send", None)),
    })
}

fn wire_tool(tool: &ToolSpec) -> AnthropicTool<'_> {
    AnthropicTool {
        name: &tool.name,
        description: &tool.description,
        input_schema: &tool.schema,
        cache_control: None,
    }
}
