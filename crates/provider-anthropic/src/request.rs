//! Encoding of requests.

mod served;
mod thinking;

use std::borrow::Cow;
use std::sync::Arc;

use backstop_provider::{ModelRequest, ProviderError, ReasoningEffort, ToolChoice};
use backstop_provider_http::{
    Endpoint, Piece, claude_form, kept_field, pieces, sendable_arguments,
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
    messages: Vec<WireMessage<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<WireTool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<WireChoice<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f32>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    stop_sequences: &'a [Arc<str>],
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<OutputConfig>,
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
    fn of(text: String, caches: bool) -> Option<Self> {
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
struct WireMessage<'a> {
    role: Role,
    content: Vec<Part<'a>>,
}

impl WireMessage<'_> {
    /// Marks the last block that can carry a mark; thinking cannot.
    fn mark(&mut self) {
        let marked = self.content.iter_mut().rev().find_map(|part| match part {
            Part::Made(marked) => Some(marked),
            Part::Kept(_) => None,
        });
        if let Some(marked) = marked {
            marked.cache_control = Some(CacheControl::Ephemeral);
        }
    }
}

/// A part of a message.
#[derive(Serialize)]
#[serde(untagged)]
enum Part<'a> {
    /// A block of an earlier answer, exactly as it was received.
    Kept(JsonText),
    Made(Marked<'a>),
}

/// A block, and whether the prefix up to it is cached for the next request.
#[derive(Serialize)]
struct Marked<'a> {
    #[serde(flatten)]
    block: Block<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

impl<'a> From<Block<'a>> for Part<'a> {
    fn from(block: Block<'a>) -> Self {
        Self::Made(Marked { block, cache_control: None })
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
enum Role {
    Assistant,
    User,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'a> {
    Text {
        text: &'a str,
    },
    Image {
        source: Source<'a>,
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
    Blocks(Vec<Block<'a>>),
    Text(&'a str),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Source<'a> {
    Base64 { media_type: &'a str, data: &'a str },
}

#[derive(Serialize)]
struct WireTool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a JsonText,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum WireChoice<'a> {
    Any,
    Auto,
    None,
    Tool { name: &'a str },
}

#[derive(Serialize, PartialEq, Default)]
struct OutputConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<ReasoningEffort>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<Format>,
}

#[derive(Serialize, PartialEq)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Format {
    JsonSchema { schema: JsonText },
}

impl<'a> MessagesRequest<'a> {
    pub(crate) fn new(
        endpoint: &'a Endpoint,
        request: &'a ModelRequest,
        caches: bool,
        stream: bool,
    ) -> Result<Self, ProviderError> {
        let mut conversation = Conversation::of(endpoint);
        for message in request.messages.messages() {
            conversation.take(message)?;
        }
        conversation.drop_unanswered();
        conversation.messages.retain(|message| !message.content.is_empty());
        conversation.end_with_user();
        let mut tools: Vec<WireTool<'_>> = request.tools.iter().map(wire_tool).collect();
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
        let config = OutputConfig {
            effort: settings.reasoning_effort,
            format: form.map(|schema| Format::JsonSchema { schema }),
        };
        let choice = settings.tool_choice.as_ref().filter(|_| !tools.is_empty());
        Ok(Self {
            model: endpoint.model(),
            max_tokens: settings.max_output_tokens.unwrap_or(DEFAULT_MAX_TOKENS),
            system: System::of(conversation.system.join("\n\n"), caches),
            messages: conversation.messages,
            tools,
            tool_choice: choice.map(wire_choice).transpose()?,
            temperature: settings.temperature,
            top_p: settings.top_p,
            stop_sequences: &settings.stop,
            output_config: (config != OutputConfig::default()).then_some(config),
            stream,
        })
    }
}

struct Conversation<'a> {
    endpoint: &'a Endpoint,
    system: Vec<&'a str>,
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
            Message::System { content } => self.system.push(content),
            Message::User { content, images } => {
                let images = images.iter().map(image);
                // The endpoint refuses empty texts.
                let text = (!content.trim().is_empty() || images.len() == 0)
                    .then_some(Block::Text { text: content });
                self.push(Role::User, images.chain(text).map(Part::from).collect());
            }
            Message::Assistant { content, tool_calls, provider_state } => {
                let kept = self.endpoint.parts_of(provider_state.as_ref());
                let pieces = pieces(content, tool_calls.len(), kept).into_iter();
                let mut caller = None;
                let mut parts = Vec::with_capacity(pieces.len());
                for piece in pieces.filter(|piece| !piece.is_blank()) {
                    match piece {
                        Piece::Text(text) => parts.push(Block::Text { text }.into()),
                        Piece::Call(place) => {
                            parts.push(tool_use(&tool_calls[place], caller.take()).into());
                        }
                        Piece::Kept(block) => match kept_field(&block, "caller") {
                            Some(told) => caller = Some(told),
                            None if is_sent(&block, !tool_calls.is_empty(), self.endpoint) => {
                                parts.push(Part::Kept(block));
                            }
                            None => {}
                        },
                    }
                }
                if !parts.is_empty() {
                    self.push(Role::Assistant, parts);
                }
            }
            Message::Tool { tool_call_id, content, images, is_error } => {
                self.take_result(Block::ToolResult {
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

    fn push(&mut self, role: Role, content: Vec<Part<'a>>) {
        self.collects_results = false;
        self.messages.push(WireMessage { role, content });
    }

    /// Adds a result to the message with the results of its turn: spread over several, they are refused.
    fn take_result(&mut self, result: Block<'a>) {
        match self.messages.last_mut() {
            Some(message) if self.collects_results => message.content.push(result.into()),
            Some(_) | None => {
                self.push(Role::User, vec![result.into()]);
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
    let text = (!text.trim().is_empty()).then_some(Block::Text { text });
    ResultContent::Blocks(text.into_iter().chain(images.iter().map(image)).collect())
}

fn image(image: &Image) -> Block<'_> {
    Block::Image { source: Source::Base64 { media_type: &image.media_type, data: &image.data } }
}

fn tool_use(call: &ToolCall, caller: Option<JsonText>) -> Block<'_> {
    Block::ToolUse {
        id: call.id.as_str(),
        name: &call.name,
        input: sendable_arguments(&call.arguments),
        caller,
    }
}

fn wire_choice(choice: &ToolChoice) -> Result<WireChoice<'_>, ProviderError> {
    Ok(match choice {
        ToolChoice::Auto => WireChoice::Auto,
        ToolChoice::None => WireChoice::None,
        ToolChoice::Required => WireChoice::Any,
        ToolChoice::Tool(name) => WireChoice::Tool { name },
        _ => return Err(ProviderError::invalid_request("a tool choice it cannot send", None)),
    })
}

fn wire_tool(tool: &ToolSpec) -> WireTool<'_> {
    WireTool {
        name: &tool.name,
        description: &tool.description,
        input_schema: &tool.schema,
        cache_control: None,
    }
}
