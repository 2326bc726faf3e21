//! What both protocols share: where OpenAI is, and how parts of a conversation are written.

use backstop_provider::{ModelRequest, OutputSchema, OutputSupport, ReasoningEffort, ToolChoice};
use backstop_provider_http::{Endpoint, Subset};
use layer0::JsonText;
use layer0::message::Image;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Serialize, Serializer};

/// Where OpenAI itself answers.
pub const BASE_URL: &str = "https://api.openai.com/v1";

/// The environment variable that [`OpenAi::from_env`](crate::OpenAi::from_env) and
/// [`OpenAiResponses::from_env`](crate::OpenAiResponses::from_env) read the key from.
pub const KEY_VARIABLE: &str = "OPENAI_API_KEY";

/// The levels that OpenAI's models tell apart, each model some of them:
/// <https://platform.openai.com/docs/guides/reasoning>.
pub(crate) const EFFORTS: &[ReasoningEffort] = &[
    ReasoningEffort::None,
    ReasoningEffort::Minimal,
    ReasoningEffort::Low,
    ReasoningEffort::Medium,
    ReasoningEffort::High,
    ReasoningEffort::XHigh,
];

/// What a schema may say that answers are held to strictly:
/// <https://platform.openai.com/docs/guides/structured-outputs#supported-schemas>.
const STRICT: Subset = Subset::of(&[
    "$defs",
    "$ref",
    "anyOf",
    "const",
    "definitions",
    "description",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "items",
    "maxItems",
    "maximum",
    "minItems",
    "minimum",
    "multipleOf",
    "pattern",
    "properties",
    "required",
    "title",
    "type",
])
.closed()
.complete();

/// The form of an answer, as both protocols say it.
#[derive(Serialize)]
pub(crate) struct Form<'a> {
    name: &'a str,
    schema: JsonText,
    /// Is the answer held to it? A schema that says more than can be held is shown to the model.
    strict: bool,
}

impl<'a> Form<'a> {
    pub(crate) fn of(output: &'a OutputSchema) -> Option<Self> {
        let schema = output.schema.value();
        let name = &*output.name;
        match STRICT.fit(&schema) {
            Some(schema) => Some(Self { name, schema, strict: true }),
            // Nothing but an object is taken.
            None if schema.get("type").is_some_and(|it| it == "object") => {
                Some(Self { name, schema: output.schema.clone(), strict: false })
            }
            None => None,
        }
    }
}

/// Says what is done with the form of an answer. A compatible server may hold the answer to it without
/// showing it to the model.
pub(crate) fn output_support(endpoint: &Endpoint, request: &ModelRequest) -> OutputSupport {
    match request.output.as_ref().and_then(Form::of) {
        Some(form) if form.strict && endpoint.is_own() => OutputSupport::Native,
        Some(_) => OutputSupport::Constrained,
        None => OutputSupport::Prompt,
    }
}

/// Returns whether a tool has to be called, which is refused where there is none.
pub(crate) fn tool_choice(request: &ModelRequest) -> Option<&ToolChoice> {
    request.settings.tool_choice.as_ref().filter(|_| !request.tools.is_empty())
}

/// What stays as it is in a query.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Returns the path of a call; Azure is told the version of its interface.
pub(crate) fn azure_path(path: &str, api_version: Option<&str>) -> String {
    match api_version {
        Some(version) => {
            format!("{path}?api-version={}", utf8_percent_encode(version, QUERY))
        }
        None => path.to_owned(),
    }
}

/// Returns the header that carries the key, and what stands before it:
/// <https://learn.microsoft.com/azure/ai-services/openai/reference#authentication>.
pub(crate) const fn key_header(api_version: Option<&str>) -> (&'static str, &'static str) {
    match api_version {
        Some(_) => ("api-key", ""),
        None => ("authorization", "Bearer "),
    }
}

/// Writes an image as a URL that holds it, RFC 2397.
pub(crate) fn data_url(image: &Image) -> String {
    format!("data:{};base64,{}", image.media_type, image.data)
}

/// Writes JSON in a string.
pub(crate) fn as_text<S: Serializer>(json: &JsonText, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(json.get())
}
