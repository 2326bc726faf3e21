//! Parts shared by both protocols: OpenAI's endpoint, and the encoding of parts of a conversation.

use backstop_provider::{ModelRequest, OutputSchema, OutputSupport, ReasoningEffort, ToolChoice};
use backstop_provider_http::{Endpoint, Subset};
use layer0::JsonText;
use layer0::message::Image;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Serialize, Serializer};

/// The base URL of OpenAI itself.
pub const BASE_URL: &str = "https://api.openai.com/v1";

/// The environment variable that [`OpenAi::from_env`](crate::OpenAi::from_env) and
/// [`OpenAiResponses::from_env`](crate::OpenAiResponses::from_env) read the key from.
pub const KEY_VARIABLE: &str = "OPENAI_API_KEY";

/// The levels of effort of OpenAI's models, with some supported by each:
/// <https://platform.openai.com/docs/guides/reasoning>.
pub(crate) const EFFORTS: &[ReasoningEffort] = &[
    ReasoningEffort::None,
    ReasoningEffort::Minimal,
    ReasoningEffort::Low,
    ReasoningEffort::Medium,
    ReasoningEffort::High,
    ReasoningEffort::XHigh,
];

/// The keywords of schemas that are enforced strictly:
/// <https://platform.openai.com/docs/guides/structured-outputs#supported-schemas>.
const STRICT: Subset = Subset::new(&[
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
.with_closed_objects()
.complete();

/// An output schema, in the form of both protocols.
#[derive(Serialize)]
pub(crate) struct OpenAiSchema<'a> {
    name: &'a str,
    schema: JsonText,
    /// Whether the schema is enforced. One with unsupported keywords is only shown to the model.
    strict: bool,
}

impl<'a> OpenAiSchema<'a> {
    pub(crate) fn from_schema(output: &'a OutputSchema) -> Option<Self> {
        let schema = output.schema.value();
        let name = &*output.name;
        match STRICT.fit(&schema) {
            Some(schema) => Some(Self { name, schema, strict: true }),
            // Only objects are accepted.
            None if schema.get("type").is_some_and(|it| it == "object") => {
                Some(Self { name, schema: output.schema.clone(), strict: false })
            }
            None => None,
        }
    }
}

/// Returns the support for the output schema of a request. A compatible server may enforce it
/// without showing it to the model.
pub(crate) fn output_support(endpoint: &Endpoint, request: &ModelRequest) -> OutputSupport {
    match request.output.as_ref().and_then(OpenAiSchema::from_schema) {
        Some(form) if form.strict && endpoint.is_own() => OutputSupport::Native,
        Some(_) => OutputSupport::Constrained,
        None => OutputSupport::Prompt,
    }
}

/// Returns the tool choice, which is refused in a request without tools.
pub(crate) fn tool_choice(request: &ModelRequest) -> Option<&ToolChoice> {
    request.settings.tool_choice.as_ref().filter(|_| !request.tools.is_empty())
}

/// The characters that a query does not escape.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Returns the path of a call, with the API version of Azure if there is one.
pub(crate) fn azure_path(path: &str, api_version: Option<&str>) -> String {
    match api_version {
        Some(version) => {
            format!("{path}?api-version={}", utf8_percent_encode(version, QUERY))
        }
        None => path.to_owned(),
    }
}

/// Returns the header that carries the key, and the prefix of its value:
/// <https://learn.microsoft.com/azure/ai-services/openai/reference#authentication>.
pub(crate) const fn key_header(api_version: Option<&str>) -> (&'static str, &'static str) {
    match api_version {
        Some(_) => ("api-key", ""),
        None => ("authorization", "Bearer "),
    }
}

/// Encodes an image as a data URL, RFC 2397.
pub(crate) fn data_url(image: &Image) -> String {
    format!("data:{};base64,{}", image.media_type, image.data)
}

/// Encodes JSON as a string.
pub(crate) fn as_text<S: Serializer>(json: &JsonText, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(json.get())
}
