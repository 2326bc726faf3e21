//! Encoding of requests.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use backstop_provider::{ModelRequest, ProviderError, ReasoningEffort, ToolChoice};
use backstop_provider_http::{AnswerPiece, Endpoint, Subset, pieces, sendable_arguments};
use layer0::message::{Image, Message, StatePart, ToolCall};
use layer0::{JsonText, ToolSpec};
use serde::Serialize;

use crate::response::{Signed, is_served};

/// Placeholder signature of a call that another model made: since Gemini 3 a call without a
/// signature is refused, and Google documents this value for calls whose signature is unknown,
/// <https://ai.google.dev/gemini-api/docs/thought-signatures#faqs>.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// The supported keywords: <https://ai.google.dev/api/generate-content#FIELDS.response_json_schema>.
const SUBSET: Subset = Subset::new(&[
    "$defs",
    "$ref",
    "additionalProperties",
    "anyOf",
    "description",
    "enum",
    "format",
    "items",
    "maxItems",
    "maximum",
    "minItems",
    "minimum",
    "oneOf",
    "prefixItems",
    "properties",
    "required",
    "title",
    "type",
]);

/// The levels of effort. Models before Gemini 3 get a number of tokens instead, and can disable thinking.
const EFFORTS: [ReasoningEffort; 5] = [
    ReasoningEffort::None,
    ReasoningEffort::Minimal,
    ReasoningEffort::Low,
    ReasoningEffort::Medium,
    ReasoningEffort::High,
];

/// The settings of a request besides its messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestSettings {
    includes_thoughts: bool,
    /// Whether the model is from before Gemini 3. Those refuse levels of thinking, and later ones
    /// refuse calls without a signature.
    is_older: bool,
}

impl RequestSettings {
    pub(crate) fn for_model(model: &str, includes_thoughts: bool) -> Self {
        let is_older = ["gemini-1", "gemini-2", "gemma"].iter().any(|older| model.contains(older));
        Self { includes_thoughts, is_older }
    }

    /// Returns the schema of the answer to send. Models before Gemini 3 refuse a schema in a
    /// request with tools.
    pub(crate) fn fit_output_schema(self, request: &ModelRequest) -> Option<JsonText> {
        let is_taken = !self.is_older || request.tools.is_empty();
        let output = request.output.as_ref().filter(|_| is_taken)?;
        SUBSET.fit(&output.schema.value())
    }

    pub(crate) fn efforts(self) -> &'static [ReasoningEffort] {
        if self.is_older { &EFFORTS } else { &EFFORTS[1..] }
    }
}

/// The body of both calls; the path determines whether the answer is streamed.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GenerateRequest<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    system_instruction: Option<Instruction<'a>>,
    contents: Vec<Content<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<WireTools<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_config: Option<GeminiToolConfig<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation_config: Option<GenerationConfig<'a>>,
}

#[derive(Serialize)]
struct Instruction<'a> {
    parts: Vec<GeminiPart<'a>>,
}

#[derive(Serialize)]
struct Content<'a> {
    role: GeminiRole,
    parts: Vec<GeminiPart<'a>>,
}

#[derive(Serialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "lowercase")]
enum GeminiRole {
    Model,
    User,
}

#[derive(Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
enum GeminiPart<'a> {
    Call {
        function_call: GeminiCall<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        thought_signature: Option<Cow<'static, str>>,
    },
    Image {
        inline_data: InlineData<'a>,
    },
    Result {
        function_response: GeminiToolResult<'a>,
    },
    /// A part of a tool that runs at Google, as it was received.
    Kept(JsonText),
    Text {
        text: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        thought_signature: Option<Cow<'static, str>>,
    },
}

impl<'a> GeminiPart<'a> {
    const fn text(text: &'a str) -> Self {
        Self::Text { text, thought_signature: None }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct InlineData<'a> {
    mime_type: &'a str,
    data: &'a str,
}

#[derive(Serialize)]
struct GeminiCall<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    name: &'a str,
    args: Cow<'a, JsonText>,
}

/// An image of a tool.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GeminiResultPart<'a> {
    inline_data: InlineData<'a>,
}

#[derive(Serialize)]
struct GeminiToolResult<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    name: &'a str,
    response: GeminiOutcome<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parts: Vec<GeminiResultPart<'a>>,
}

/// The keys that distinguish an output from a failure in the protocol.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum GeminiOutcome<'a> {
    Error(&'a str),
    Output(&'a str),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireTools<'a> {
    function_declarations: Vec<Declaration<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Declaration<'a> {
    name: &'a str,
    description: &'a str,
    parameters_json_schema: &'a JsonText,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GeminiToolConfig<'a> {
    function_calling_config: CallingConfig<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CallingConfig<'a> {
    mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed_function_names: Option<[&'a str; 1]>,
}

#[derive(Serialize, PartialEq, Default)]
#[serde(rename_all = "camelCase")]
struct GenerationConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f32>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    stop_sequences: &'a [Arc<str>],
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_mime_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_json_schema: Option<JsonText>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_config: Option<ThinkingConfig>,
}

#[derive(Serialize, PartialEq, Default)]
#[serde(rename_all = "camelCase")]
struct ThinkingConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    include_thoughts: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_level: Option<ReasoningEffort>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_budget: Option<u32>,
}

impl ThinkingConfig {
    fn new(settings: RequestSettings, effort: Option<ReasoningEffort>) -> Self {
        let budget = effort.filter(|_| settings.is_older).map(thinking_budget);
        Self {
            include_thoughts: settings.includes_thoughts.then_some(true),
            thinking_level: effort.filter(|_| !settings.is_older),
            thinking_budget: budget,
        }
    }
}

/// Returns the tokens of thinking for an effort, for models that count them, with Google's own
/// mapping: <https://ai.google.dev/gemini-api/docs/openai#thinking>.
const fn thinking_budget(effort: ReasoningEffort) -> u32 {
    match effort {
        ReasoningEffort::None => 0,
        ReasoningEffort::Minimal | ReasoningEffort::Low => 1_024,
        ReasoningEffort::Medium => 8_192,
        _ => 24_576,
    }
}

impl<'a> GenerateRequest<'a> {
    pub(crate) fn new(
        endpoint: &'a Endpoint,
        request: &'a ModelRequest,
        settings: RequestSettings,
    ) -> Result<Self, ProviderError> {
        let mut conversation = GeminiConversation::new(endpoint, settings);
        for message in request.messages.messages() {
            conversation.take(message)?;
        }
        let asked = &request.settings;
        let thinking = ThinkingConfig::new(settings, asked.reasoning_effort);
        let form = settings.fit_output_schema(request);
        let config = GenerationConfig {
            max_output_tokens: asked.max_output_tokens,
            temperature: asked.temperature,
            top_p: asked.top_p,
            stop_sequences: &asked.stop,
            seed: asked.seed,
            response_mime_type: form.is_some().then_some("application/json"),
            response_json_schema: form,
            thinking_config: (thinking != ThinkingConfig::default()).then_some(thinking),
        };
        let choice = asked.tool_choice.as_ref().filter(|_| !request.tools.is_empty());
        let parts = conversation.system;
        let declarations: Vec<_> = request.tools.iter().map(declaration).collect();
        let tools =
            (!declarations.is_empty()).then_some(WireTools { function_declarations: declarations });
        Ok(Self {
            system_instruction: (!parts.is_empty()).then_some(Instruction { parts }),
            contents: conversation.contents,
            tools: tools.into_iter().collect(),
            tool_config: choice.map(tool_config).transpose()?,
            generation_config: (config != GenerationConfig::default()).then_some(config),
        })
    }
}

struct GeminiConversation<'a> {
    endpoint: &'a Endpoint,
    settings: RequestSettings,
    system: Vec<GeminiPart<'a>>,
    contents: Vec<Content<'a>>,
    /// The name of the tool of each call: the protocol identifies results by name.
    names: BTreeMap<&'a str, &'a str>,
    /// Whether the last content has tool results, and the next result belongs to it.
    collects_results: bool,
}

impl<'a> GeminiConversation<'a> {
    const fn new(endpoint: &'a Endpoint, settings: RequestSettings) -> Self {
        Self {
            endpoint,
            settings,
            system: Vec::new(),
            contents: Vec::new(),
            names: BTreeMap::new(),
            collects_results: false,
        }
    }

    fn take(&mut self, message: &'a Message) -> Result<(), ProviderError> {
        match message {
            // The endpoint refuses empty parts.
            Message::System { content } => {
                self.system.extend((!content.trim().is_empty()).then(|| GeminiPart::text(content)));
            }
            Message::User { content, images } => {
                let images = images.iter().map(image);
                // The endpoint refuses empty parts.
                let text = (!content.trim().is_empty() || images.len() == 0)
                    .then(|| GeminiPart::text(content));
                self.push(GeminiRole::User, images.chain(text).collect());
            }
            Message::Assistant { content, tool_calls, provider_state } => {
                let kept = self.endpoint.state_parts(provider_state.as_ref());
                let mut text_signature = signature(kept, Signed::Text, 0);
                let mut parts = Vec::with_capacity(tool_calls.len() + 1);
                // Signatures are sent back with their text or call, and have no place of their own.
                let served = kept.iter().filter(|part| is_served(&part.data)).cloned();
                let served: Vec<StatePart> = served.collect();
                for piece in pieces(content, tool_calls.len(), &served) {
                    match piece {
                        AnswerPiece::Text(text) => {
                            let thought_signature = text_signature.take();
                            parts.push(GeminiPart::Text { text, thought_signature });
                        }
                        AnswerPiece::Call(at) => {
                            let signature = signature(kept, Signed::Call, at);
                            parts.push(self.call(at, &tool_calls[at], signature));
                        }
                        AnswerPiece::Kept(part) => parts.push(GeminiPart::Kept(part)),
                    }
                }
                if !parts.is_empty() {
                    self.push(GeminiRole::Model, parts);
                }
                let names = tool_calls.iter().map(|call| (call.id.as_str(), &*call.name));
                self.names.extend(names);
            }
            Message::Tool { tool_call_id, content, images, is_error } => {
                self.take_result(tool_call_id.as_str(), content, images, *is_error);
            }
            _ => {
                let why = "a kind of message it cannot send";
                return Err(ProviderError::invalid_request(why, None));
            }
        }
        Ok(())
    }

    fn call(
        &self,
        at: usize,
        call: &'a ToolCall,
        signature: Option<Cow<'static, str>>,
    ) -> GeminiPart<'a> {
        let id = sendable_id(call.id.as_str());
        let args = sendable_arguments(&call.arguments);
        GeminiPart::Call {
            function_call: GeminiCall { id, name: &call.name, args },
            // Of parallel calls, only the first has a signature.
            thought_signature: signature
                .or((!self.settings.is_older && at == 0).then_some(NO_SIGNATURE.into())),
        }
    }

    fn push(&mut self, role: GeminiRole, parts: Vec<GeminiPart<'a>>) {
        self.collects_results = false;
        self.contents.push(Content { role, parts });
    }

    /// Adds a result to the content with the results of its turn: as many as calls are expected there.
    fn take_result(&mut self, id: &'a str, content: &'a str, images: &'a [Image], is_error: bool) {
        let Some(name) = self.names.get(id).copied() else {
            // A result without its call in the conversation is refused, so it becomes text.
            let images = images.iter().map(image);
            return self
                .push(GeminiRole::User, images.chain([GeminiPart::text(content)]).collect());
        };
        // Models before Gemini 3 accept no images in a result; its text mentions them.
        let taken = if self.settings.is_older { &[] } else { images };
        let parts =
            taken.iter().map(|image| GeminiResultPart { inline_data: inline(image) }).collect();
        let response =
            if is_error { GeminiOutcome::Error(content) } else { GeminiOutcome::Output(content) };
        let id = sendable_id(id);
        let result = GeminiPart::Result {
            function_response: GeminiToolResult { id, name, response, parts },
        };
        match self.contents.last_mut() {
            Some(last) if self.collects_results => last.parts.push(result),
            Some(_) | None => {
                self.push(GeminiRole::User, vec![result]);
                self.collects_results = true;
            }
        }
    }
}

fn image(image: &Image) -> GeminiPart<'_> {
    GeminiPart::Image { inline_data: inline(image) }
}

fn inline(image: &Image) -> InlineData<'_> {
    InlineData { mime_type: &image.media_type, data: &image.data }
}

/// Returns the signature received with the text, or with the call after so many others.
fn signature(kept: &[StatePart], of: Signed, calls: usize) -> Option<Cow<'static, str>> {
    let mut kept = kept.iter().filter(|part| part.calls_before == calls);
    kept.find_map(|part| Some(part.data.value().get(of.as_str())?.as_str()?.to_owned().into()))
}

/// Returns the id if the model gave it. Most models give none, and match results with calls by name
/// and order; an id made up for the run (`~1`) means nothing to them.
fn sendable_id(id: &str) -> Option<&str> {
    (!id.is_empty() && !id.starts_with('~')).then_some(id)
}

fn tool_config(choice: &ToolChoice) -> Result<GeminiToolConfig<'_>, ProviderError> {
    let (mode, name) = match choice {
        ToolChoice::Auto => ("AUTO", None),
        ToolChoice::None => ("NONE", None),
        ToolChoice::Required => ("ANY", None),
        ToolChoice::Tool(name) => ("ANY", Some([&**name])),
        _ => return Err(ProviderError::invalid_request("a tool choice it cannot send", None)),
    };
    Ok(GeminiToolConfig {
        function_calling_config: CallingConfig { mode, allowed_function_names: name },
    })
}

fn declaration(tool: &ToolSpec) -> Declaration<'_> {
    Declaration {
        name: &tool.name,
        description: &tool.description,
        parameters_json_schema: &tool.schema,
    }
}
