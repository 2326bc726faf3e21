//! Encoding of requests.

use std::borrow::Cow;

use backstop_provider::{ModelRequest, ProviderError, ReasoningEffort, ToolChoice};
use backstop_provider_http::{AnswerPiece, Endpoint, kept_field, pieces, sendable_arguments};
use layer0::message::{Image, Message, ToolCall};
use layer0::{JsonText, ToolSpec};
use serde::Serialize;

use super::paragraph::BREAK;
use crate::own::{OpenAiSchema, as_text, data_url, tool_choice};

/// The smallest output limit that the protocol accepts. The rest of a budget may be less; a refused
/// request would hide that the budget is used up.
const MIN_OUTPUT_TOKENS: u32 = 16;

#[derive(Serialize)]
pub(crate) struct ResponsesRequest<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<String>,
    input: Vec<InputItem<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<ResponsesTool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<ResponsesChoice<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<Reasoning>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    include: &'static [&'static str],
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<TextSettings<'a>>,
    /// Whether the provider stores the response, as it does by default.
    store: bool,
    stream: bool,
}

#[derive(Serialize)]
struct TextSettings<'a> {
    format: ResponsesFormat<'a>,
}

#[derive(Serialize)]
struct ResponsesFormat<'a> {
    r#type: &'static str,
    #[serde(flatten)]
    form: OpenAiSchema<'a>,
}

#[derive(Serialize, PartialEq, Default)]
struct Reasoning {
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<ReasoningEffort>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ResponsesChoice<'a> {
    Tool { r#type: &'static str, name: &'a str },
    Word(&'a str),
}

/// The settings of reasoning models.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReasoningSettings {
    pub(crate) summaries: bool,
    /// Whether encrypted reasoning is requested, to be sent back with the calls it led to.
    pub(crate) encrypted: bool,
}

/// A part of the conversation. Items carry no id: an item that was not stored cannot be looked up,
/// and a call whose id is known is refused without the reasoning that led to it.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum InputItem<'a> {
    Message {
        role: &'static str,
        content: InputContent<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        phase: Option<JsonText>,
    },
    FunctionCall {
        call_id: &'a str,
        name: &'a str,
        /// JSON in a string, as the protocol requires.
        #[serde(serialize_with = "as_text")]
        arguments: Cow<'a, JsonText>,
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<JsonText>,
    },
    FunctionCallOutput {
        call_id: &'a str,
        output: InputContent<'a>,
    },
    /// As it was received with the answer.
    #[serde(untagged)]
    Kept(JsonText),
}

#[derive(Serialize)]
#[serde(untagged)]
enum InputContent<'a> {
    Text(&'a str),
    Parts(Vec<InputPart<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum InputPart<'a> {
    InputText { text: &'a str },
    InputImage { image_url: String },
}

#[derive(Serialize)]
struct ResponsesTool<'a> {
    r#type: &'static str,
    name: &'a str,
    description: &'a str,
    parameters: &'a JsonText,
    /// Whether the schema is in the strict subset, as not every tool's is; strict is the default here.
    strict: bool,
}

impl<'a> ResponsesRequest<'a> {
    pub(crate) fn new(
        endpoint: &'a Endpoint,
        request: &'a ModelRequest,
        reasoning: ReasoningSettings,
        stream: bool,
    ) -> Result<Self, ProviderError> {
        let messages = request.messages.messages();
        // System messages at the beginning are the instructions; a later one keeps its place.
        let instructions: Vec<&str> = messages
            .iter()
            .map_while(|message| match &**message {
                Message::System { content } => Some(&**content),
                _ => None,
            })
            .collect();
        let mut input = Vec::with_capacity(messages.len());
        for message in messages.iter().skip(instructions.len()) {
            push_items(&mut input, message, endpoint)?;
        }
        let settings = &request.settings;
        let limit = settings.max_output_tokens;
        let asked = Reasoning {
            summary: reasoning.summaries.then_some("auto"),
            effort: settings.reasoning_effort,
        };
        Ok(Self {
            model: endpoint.model(),
            instructions: (!instructions.is_empty()).then(|| instructions.join("\n\n")),
            input,
            tools: request.tools.iter().map(wire_tool).collect(),
            tool_choice: tool_choice(request).map(wire_choice),
            temperature: settings.temperature,
            top_p: settings.top_p,
            max_output_tokens: limit.map(|limit| limit.max(MIN_OUTPUT_TOKENS)),
            reasoning: (asked != Reasoning::default()).then_some(asked),
            include: if reasoning.encrypted { &["reasoning.encrypted_content"] } else { &[] },
            text: request.output.as_ref().and_then(OpenAiSchema::from_schema).map(|form| {
                TextSettings { format: ResponsesFormat { r#type: "json_schema", form } }
            }),
            store: false,
            stream,
        })
    }
}

fn push_items<'a>(
    input: &mut Vec<InputItem<'a>>,
    message: &'a Message,
    endpoint: &Endpoint,
) -> Result<(), ProviderError> {
    let mut say = |role, content| input.push(InputItem::Message { role, content, phase: None });
    match message {
        Message::System { content } => say("system", InputContent::Text(content)),
        Message::User { content, images } => say("user", build_content(content, images)),
        Message::Assistant { content, tool_calls, provider_state } => {
            let kept = endpoint.state_parts(provider_state.as_ref());
            let pieces = pieces(content, tool_calls.len(), kept);
            if pieces.is_empty() {
                say("assistant", InputContent::Text(content));
            }
            let (mut phase, mut namespace) = (None, None);
            for piece in pieces {
                match piece {
                    AnswerPiece::Text(text) => input.push(build_assistant_item(text, phase.take())),
                    AnswerPiece::Call(place) => {
                        input.push(wire_call(&tool_calls[place], namespace.take()));
                    }
                    AnswerPiece::Kept(item) => {
                        match (kept_field(&item, "phase"), kept_field(&item, "namespace")) {
                            (None, None) => input.push(InputItem::Kept(item)),
                            (told_phase, told_namespace) => {
                                phase = told_phase.or(phase);
                                namespace = told_namespace.or(namespace);
                            }
                        }
                    }
                }
            }
        }
        // The protocol has no mark for failed calls; the text mentions the failure.
        Message::Tool { tool_call_id, content, images, is_error: _ } => {
            let call_id = tool_call_id.as_str();
            // The text mentions the images.
            let images = if takes_images(endpoint.model()) { &**images } else { &[] };
            let output = build_content(content, images);
            input.push(InputItem::FunctionCallOutput { call_id, output });
        }
        _ => return Err(ProviderError::invalid_request("a kind of message it cannot send", None)),
    }
    Ok(())
}

/// Makes the message of an assistant's text. One with a phase is a paragraph of its own.
fn build_assistant_item(text: &str, phase: Option<JsonText>) -> InputItem<'_> {
    let text = match phase {
        Some(_) => text.strip_prefix(BREAK).unwrap_or(text),
        None => text,
    };
    InputItem::Message { role: "assistant", content: InputContent::Text(text), phase }
}

/// Returns whether a model accepts images. Few that speak this protocol do not; images of a tool
/// must not make them refuse the conversation.
fn takes_images(model: &str) -> bool {
    let text_only = ["gpt-3.5", "gpt-oss", "o1-mini", "o3-mini"];
    !text_only.iter().any(|name| model.contains(name))
}

fn build_content<'a>(text: &'a str, images: &'a [Image]) -> InputContent<'a> {
    if images.is_empty() {
        return InputContent::Text(text);
    }
    let image = |image| InputPart::InputImage { image_url: data_url(image) };
    // Endpoints refuse blank texts.
    let text = (!text.trim().is_empty()).then_some(InputPart::InputText { text });
    InputContent::Parts(text.into_iter().chain(images.iter().map(image)).collect())
}

fn wire_call(call: &ToolCall, namespace: Option<JsonText>) -> InputItem<'_> {
    InputItem::FunctionCall {
        call_id: call.id.as_str(),
        name: &call.name,
        arguments: sendable_arguments(&call.arguments),
        namespace,
    }
}

fn wire_choice(choice: &ToolChoice) -> ResponsesChoice<'_> {
    match choice {
        ToolChoice::Tool(name) => ResponsesChoice::Tool { r#type: "function", name },
        word => ResponsesChoice::Word(word.as_str()),
    }
}

fn wire_tool(tool: &ToolSpec) -> ResponsesTool<'_> {
    ResponsesTool {
        r#type: "function",
        name: &tool.name,
        description: &tool.description,
        parameters: &tool.schema,
        strict: false,
    }
}
