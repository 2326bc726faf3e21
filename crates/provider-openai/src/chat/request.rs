//! Encoding of requests.

use std::borrow::Cow;
use std::sync::Arc;

use backstop_provider::{ModelRequest, ProviderError, ReasoningEffort, ToolChoice};
use backstop_provider_http::{Endpoint, sendable_arguments};
use layer0::message::{Image, Message, ToolCall};
use layer0::{JsonText, ToolSpec};
use serde::Serialize;

use super::content::SaidContent;
use super::kept::{call_content, message_fields};
use crate::dialect::{KeptReasoning, RequestFields};
use crate::own::{OpenAiSchema, as_text, data_url, tool_choice};

/// The field that carries the output limit.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MaxTokens {
    Classic,
    Completion,
}

/// The differences of an endpoint in requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dialect {
    pub(crate) max_tokens: MaxTokens,
    /// Whether a stream requests its usage.
    pub(crate) stream_options: bool,
    /// The reasoning to send back.
    pub(crate) reasoning: KeptReasoning,
    /// The names of fields.
    pub(crate) fields: RequestFields,
}

#[derive(Serialize)]
pub(crate) struct ChatRequest<'a> {
    model: &'a str,
    messages: Vec<ChatMessage<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<ChatTool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<ChatToolChoice<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f32>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    stop: &'a [Arc<str>],
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    random_seed: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<ReasoningEffort>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_format: Option<ResponseFormat<'a>>,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
}

#[derive(Serialize)]
struct ResponseFormat<'a> {
    r#type: &'static str,
    json_schema: OpenAiSchema<'a>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum ChatMessage<'a> {
    System {
        content: &'a str,
    },
    User {
        content: UserContent<'a>,
    },
    Assistant {
        content: Option<SaidContent<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning_content: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning_details: Option<JsonText>,
        #[serde(skip_serializing_if = "Option::is_none")]
        extra_content: Option<JsonText>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ChatCall<'a>>,
    },
    Tool {
        tool_call_id: &'a str,
        content: &'a str,
    },
}

/// Plain text is a string, which every endpoint supports.
#[derive(Serialize)]
#[serde(untagged)]
enum UserContent<'a> {
    Text(&'a str),
    Parts(Vec<ChatPart<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ChatPart<'a> {
    Text { text: &'a str },
    ImageUrl { image_url: ImageUrl },
}

#[derive(Serialize)]
struct ImageUrl {
    url: String,
}

#[derive(Serialize)]
struct ChatCall<'a> {
    id: &'a str,
    r#type: &'static str,
    function: ChatFunction<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_content: Option<JsonText>,
}

#[derive(Serialize)]
struct ChatFunction<'a> {
    name: &'a str,
    /// JSON in a string, as the protocol requires.
    #[serde(serialize_with = "as_text")]
    arguments: Cow<'a, JsonText>,
}

#[derive(Serialize)]
struct ChatTool<'a> {
    r#type: &'static str,
    function: ChatToolFunction<'a>,
}

#[derive(Serialize)]
struct ChatToolFunction<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a JsonText,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ChatToolChoice<'a> {
    Tool { r#type: &'static str, function: ChosenTool<'a> },
    Word(&'a str),
}

#[derive(Serialize)]
struct ChosenTool<'a> {
    name: &'a str,
}

impl<'a> ChatRequest<'a> {
    pub(crate) fn new(
        endpoint: &'a Endpoint,
        request: &'a ModelRequest,
        dialect: Dialect,
        stream: bool,
    ) -> Result<Self, ProviderError> {
        let settings = &request.settings;
        let limit = settings.max_output_tokens;
        let (max_tokens, max_completion_tokens) = match dialect.max_tokens {
            MaxTokens::Classic => (limit, None),
            MaxTokens::Completion => (None, limit),
        };
        let any_calls = request.messages.messages().iter().any(|message| {
            matches!(&**message, Message::Assistant { tool_calls, .. } if !tool_calls.is_empty())
        });
        Ok(Self {
            model: endpoint.model(),
            messages: request
                .messages
                .messages()
                .iter()
                .map(|message| wire_message(message, endpoint, dialect.reasoning, any_calls))
                .collect::<Result<_, _>>()?,
            tools: request.tools.iter().map(wire_tool).collect(),
            tool_choice: tool_choice(request).map(wire_choice),
            temperature: settings.temperature,
            top_p: settings.top_p,
            stop: &settings.stop,
            seed: settings.seed.filter(|_| dialect.fields == RequestFields::Usual),
            random_seed: settings.seed.filter(|_| dialect.fields == RequestFields::Mistral),
            reasoning_effort: settings.reasoning_effort,
            max_tokens,
            max_completion_tokens,
            response_format: request
                .output
                .as_ref()
                .and_then(OpenAiSchema::from_schema)
                .map(|json_schema| ResponseFormat { r#type: "json_schema", json_schema }),
            stream,
            stream_options: (stream && dialect.stream_options)
                .then_some(StreamOptions { include_usage: true }),
        })
    }
}

fn wire_message<'a>(
    message: &'a Message,
    endpoint: &Endpoint,
    reasoning: KeptReasoning,
    any_calls: bool,
) -> Result<ChatMessage<'a>, ProviderError> {
    Ok(match message {
        Message::System { content } => ChatMessage::System { content },
        Message::User { content, images } => {
            ChatMessage::User { content: user_content(content, images) }
        }
        Message::Assistant { content, tool_calls, provider_state } => {
            let parts = endpoint.state_parts(provider_state.as_ref());
            let kept = message_fields(parts, reasoning, !tool_calls.is_empty(), any_calls);
            let calls = tool_calls.iter().enumerate();
            let thoughts = if reasoning == KeptReasoning::Parts { parts } else { &[] };
            let said = SaidContent::new(content, thoughts);
            ChatMessage::Assistant {
                // A message with only tool calls has no content, as OpenAI itself writes it.
                content: (!said.is_empty() || tool_calls.is_empty()).then_some(said),
                reasoning_content: kept.reasoning_content,
                reasoning: kept.reasoning,
                reasoning_details: kept.reasoning_details,
                extra_content: kept.extra_content,
                tool_calls: calls
                    .map(|(place, call)| wire_call(call, call_content(parts, place, reasoning)))
                    .collect(),
            }
        }
        // The protocol has neither a mark for failed calls nor images of tools; the text mentions both.
        Message::Tool { tool_call_id, content, images: _, is_error: _ } => {
            ChatMessage::Tool { tool_call_id: tool_call_id.as_str(), content }
        }
        _ => return Err(ProviderError::invalid_request("a kind of message it cannot send", None)),
    })
}

fn user_content<'a>(text: &'a str, images: &'a [Image]) -> UserContent<'a> {
    if images.is_empty() {
        return UserContent::Text(text);
    }
    let image = |image| ChatPart::ImageUrl { image_url: ImageUrl { url: data_url(image) } };
    // Endpoints refuse blank texts.
    let text = (!text.trim().is_empty()).then_some(ChatPart::Text { text });
    UserContent::Parts(text.into_iter().chain(images.iter().map(image)).collect())
}

fn wire_call(call: &ToolCall, extra_content: Option<JsonText>) -> ChatCall<'_> {
    let arguments = sendable_arguments(&call.arguments);
    ChatCall {
        id: call.id.as_str(),
        r#type: "function",
        function: ChatFunction { name: &call.name, arguments },
        extra_content,
    }
}

fn wire_choice(choice: &ToolChoice) -> ChatToolChoice<'_> {
    match choice {
        ToolChoice::Tool(name) => {
            ChatToolChoice::Tool { r#type: "function", function: ChosenTool { name } }
        }
        word => ChatToolChoice::Word(word.as_str()),
    }
}

fn wire_tool(tool: &ToolSpec) -> ChatTool<'_> {
    ChatTool {
        r#type: "function",
        function: ChatToolFunction {
            name: &tool.name,
            description: &tool.description,
            parameters: &tool.schema,
        },
    }
}
