//! What both protocols share: where OpenAI is, and how parts of a conversation are written.

use layer0::JsonText;
use layer0::message::Image;
use serde::Serializer;

/// Where OpenAI itself answers.
pub const BASE_URL: &str = "https://api.openai.com/v1";

/// The environment variable that [`OpenAi::from_env`](crate::OpenAi::from_env) and
/// [`OpenAiResponses::from_env`](crate::OpenAiResponses::from_env) read the key from.
pub const KEY_VARIABLE: &str = "OPENAI_API_KEY";

/// Writes an image as a URL that holds it, RFC 2397.
pub(crate) fn data_url(image: &Image) -> String {
    format!("data:{};base64,{}", image.media_type, image.data)
}

/// Writes JSON in a string.
pub(crate) fn as_text<S: Serializer>(json: &JsonText, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(json.get())
}
