//! What is sent.

use std::borrow::Cow;
use std::collections::BTreeMap;

use layer0::message::{Image, Message, StatePart, ToolCall};
use layer0::{JsonText, ToolSpec};
use provider::{ModelRequest, ProviderError};
use provider_http::{Endpoint, sendable_arguments};
use serde::Serialize;

use crate::response::Signed;

/// Stands for the signature of a call that another model made: since Gemini 3 a call without one is
/// refused, and Google documents this value for calls whose signature is not known,
/// <https://ai.google.dev/gemini-api/docs/thought-signatures#faqs>.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// What a request depends on besides its messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestSettings {
    includes_thoughts: bool,
    /// Does the model refuse calls without a signature?
    wants_signatures: bool,
}

impl RequestSettings {
    pub(crate) fn of(model: &str, includes_thoughts: bool) -> Self {
        let is_older = ["gemini-1", "gemini-2", "gemma"].iter().any(|older| model.contains(older));
        Self { includes_thoughts, wants_signatures: !is_older }
    }
}

/// The body of both calls; whether the answer streams is said by the path.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GenerateRequest<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    system_instruction: Option<Instruction<'a>>,
    contents: Vec<Content<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<WireTools<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation_config: Option<GenerationConfig>,
}

#[derive(Serialize)]
struct Instruction<'a> {
    parts: Vec<Part<'a>>,
}

#[derive(Serialize)]
struct Content<'a> {
    role: Role,
    parts: Vec<Part<'a>>,
}

#[derive(Serialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Role {
    Model,
    User,
}

#[derive(Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
enum Part<'a> {
    Call {
        function_call: WireCall<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        thought_signature: Option<&'a str>,
    },
    Image {
        inline_data: InlineData<'a>,
    },
    Result {
        function_response: WireResult<'a>,
    },
    Text {
        text: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        thought_signature: Option<&'a str>,
    },
}

impl<'a> Part<'a> {
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
struct WireCall<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    name: &'a str,
    args: Cow<'a, JsonText>,
}

#[derive(Serialize)]
struct WireResult<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    name: &'a str,
    response: Outcome<'a>,
}

/// The keys by which the protocol tells an output from a failure.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Outcome<'a> {
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

#[derive(Serialize, PartialEq, Default)]
#[serde(rename_all = "camelCase")]
struct GenerationConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_config: Option<ThinkingConfig>,
}

#[derive(Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
struct ThinkingConfig {
    include_thoughts: bool,
}

impl<'a> GenerateRequest<'a> {
    pub(crate) fn new(
        endpoint: &'a Endpoint,
        request: &'a ModelRequest,
        settings: RequestSettings,
    ) -> Result<Self, ProviderError> {
        let mut conversation = Conversation::new(endpoint, settings);
        for message in request.messages.messages() {
            conversation.take(message)?;
        }
        let config = GenerationConfig {
            max_output_tokens: request.settings.max_output_tokens,
            temperature: request.settings.temperature,
            thinking_config: settings
                .includes_thoughts
                .then_some(ThinkingConfig { include_thoughts: true }),
        };
        let parts = conversation.system;
        let declarations: Vec<_> = request.tools.iter().map(declaration).collect();
        let tools =
            (!declarations.is_empty()).then_some(WireTools { function_declarations: declarations });
        Ok(Self {
            system_instruction: (!parts.is_empty()).then_some(Instruction { parts }),
            contents: conversation.contents,
            tools: tools.into_iter().collect(),
            generation_config: (config != GenerationConfig::default()).then_some(config),
        })
    }
}

struct Conversation<'a> {
    endpoint: &'a Endpoint,
    settings: RequestSettings,
    system: Vec<Part<'a>>,
    contents: Vec<Content<'a>>,
    /// The name of the tool that each call asked for: the protocol has results by name.
    names: BTreeMap<&'a str, &'a str>,
    /// Is the last content one of tool results, which the next result belongs to?
    collects_results: bool,
}

impl<'a> Conversation<'a> {
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
            Message::System { content } => self.system.push(Part::text(content)),
            Message::User { content, images } => {
                let images = images.iter().map(image);
                self.push(Role::User, images.chain([Part::text(content)]).collect());
            }
            Message::Assistant { content, tool_calls, provider_state } => {
                let kept = self.endpoint.parts_of(provider_state.as_ref());
                // Empty texts are refused.
                let text = (!content.is_empty()).then(|| Part::Text {
                    text: content,
                    thought_signature: signature(kept, Signed::Text, 0),
                });
                let calls = tool_calls.iter().enumerate();
                let calls =
                    calls.map(|(at, call)| self.call(at, call, signature(kept, Signed::Call, at)));
                let calls: Vec<_> = calls.collect();
                let parts: Vec<_> = text.into_iter().chain(calls).collect();
                if !parts.is_empty() {
                    self.push(Role::Model, parts);
                }
                let names = tool_calls.iter().map(|call| (call.id.as_str(), &*call.name));
                self.names.extend(names);
            }
            Message::Tool { tool_call_id, content, is_error } => {
                self.take_result(tool_call_id.as_str(), content, *is_error);
            }
            _ => {
                let why = "a kind of message it cannot send";
                return Err(ProviderError::invalid_request(why, None));
            }
        }
        Ok(())
    }

    fn call(&self, at: usize, call: &'a ToolCall, signature: Option<&'a str>) -> Part<'a> {
        let id = sendable_id(call.id.as_str());
        let args = sendable_arguments(&call.arguments);
        Part::Call {
            function_call: WireCall { id, name: &call.name, args },
            // Of calls in parallel, the first alone carries one.
            thought_signature: signature
                .or((self.settings.wants_signatures && at == 0).then_some(NO_SIGNATURE)),
        }
    }

    fn push(&mut self, role: Role, parts: Vec<Part<'a>>) {
        self.collects_results = false;
        self.contents.push(Content { role, parts });
    }

    /// Puts the results of one turn into one content: as many as there were calls are expected.
    fn take_result(&mut self, id: &'a str, content: &'a str, is_error: bool) {
        let Some(name) = self.names.get(id).copied() else {
            // A result whose call is not in the conversation is refused, so it becomes text.
            return self.push(Role::User, vec![Part::text(content)]);
        };
        let response = if is_error { Outcome::Error(content) } else { Outcome::Output(content) };
        let result =
            Part::Result { function_response: WireResult { id: sendable_id(id), name, response } };
        match self.contents.last_mut() {
            Some(last) if self.collects_results => last.parts.push(result),
            Some(_) | None => {
                self.push(Role::User, vec![result]);
                self.collects_results = true;
            }
        }
    }
}

fn image(image: &Image) -> Part<'_> {
    Part::Image { inline_data: InlineData { mime_type: &image.media_type, data: &image.data } }
}

/// Returns the signature that came with the text, or with the call behind so many others.
fn signature(kept: &[StatePart], of: Signed, calls: usize) -> Option<&str> {
    let mut kept = kept.iter().filter(|part| part.calls_before == calls);
    kept.find_map(|part| part.data.get(of.as_str())?.as_str())
}

/// Returns the id where it is one the model gave. Most models give none, and results find their
/// calls by name and order; what was then made up for the run (`~1`) is nothing to them.
fn sendable_id(id: &str) -> Option<&str> {
    (!id.is_empty() && !id.starts_with('~')).then_some(id)
}

fn declaration(tool: &ToolSpec) -> Declaration<'_> {
    Declaration {
        name: &tool.name,
        description: &tool.description,
        parameters_json_schema: &tool.schema,
    }
}
