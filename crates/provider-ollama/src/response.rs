//! What comes back in one piece, and the parts that a stream shares with it.

use layer0::message::StopReason;
use layer0::usage::TokenUsage;
use provider::{ModelResponse, ProviderError, StreamSink};
use provider_http::{Answer, CallDraft, Endpoint, finish_calls, lenient};
use serde::Deserialize;
use serde_json::value::RawValue;

/// A whole answer, or a line of one.
#[derive(Deserialize)]
pub(crate) struct Chunk {
    message: Option<Said>,
    #[serde(default, deserialize_with = "lenient::or_default")]
    pub(crate) done: bool,
    #[serde(default, deserialize_with = "lenient::text")]
    done_reason: Option<String>,
    #[serde(default, deserialize_with = "lenient::count")]
    prompt_eval_count: Option<u64>,
    #[serde(default, deserialize_with = "lenient::count")]
    eval_count: Option<u64>,
}

impl Chunk {
    /// The last line counts the tokens. Cached ones are not told apart.
    fn usage(&self) -> Option<TokenUsage> {
        self.prompt_eval_count.or(self.eval_count)?;
        Some(TokenUsage {
            input_tokens: self.prompt_eval_count.unwrap_or_default(),
            output_tokens: self.eval_count.unwrap_or_default(),
            cached_tokens: 0,
        })
    }
}

#[derive(Deserialize)]
struct Said {
    #[serde(default, deserialize_with = "lenient::text")]
    content: Option<String>,
    #[serde(default, deserialize_with = "lenient::text")]
    thinking: Option<String>,
    tool_calls: Option<Vec<WireCall>>,
}

/// A call, which always comes whole.
#[derive(Deserialize)]
struct WireCall {
    /// Newer versions send one.
    #[serde(default, deserialize_with = "lenient::text")]
    id: Option<String>,
    function: WireFunction,
}

#[derive(Deserialize)]
struct WireFunction {
    name: String,
    /// An object; a string is what the model wrote where somebody in between could not read it.
    arguments: Option<Box<RawValue>>,
}

impl From<WireCall> for CallDraft {
    fn from(call: WireCall) -> Self {
        let mut draft = Self::new(call.id.unwrap_or_default(), call.function.name);
        draft.take(call.function.arguments);
        draft
    }
}

/// Reads a whole answer. Only usage goes to the sink: nobody waits for text that is there at once.
pub(crate) async fn read(
    endpoint: &Endpoint,
    answer: Answer<'_>,
    sink: Option<&dyn StreamSink>,
) -> Result<ModelResponse, ProviderError> {
    let chunk: Chunk = answer.json().await?;
    if chunk.message.is_none() && !chunk.done {
        return Err(endpoint.invalid_response("an answer without a message"));
    }
    let is_done = chunk.done;
    let mut draft = Draft::default();
    draft.take(chunk, None);
    if let (Some(sink), Some(usage)) = (sink, draft.usage) {
        sink.usage(usage);
    }
    if is_done { draft.finish(endpoint) } else { Err(truncated()) }
}

/// What an answer is that never said it was done.
pub(crate) fn truncated() -> ProviderError {
    ProviderError::stream_truncated("`done: true`")
}

/// An answer that is being put together.
#[derive(Default)]
pub(crate) struct Draft {
    text: String,
    thinking: String,
    calls: Vec<CallDraft>,
    usage: Option<TokenUsage>,
    done_reason: Option<String>,
}

impl Draft {
    /// Takes a piece, and tells it to whoever listens.
    pub(crate) fn take(&mut self, chunk: Chunk, sink: Option<&dyn StreamSink>) {
        if let Some(usage) = chunk.usage() {
            self.usage = Some(usage);
            if let Some(sink) = sink {
                sink.usage(usage);
            }
        }
        self.done_reason = chunk.done_reason.or(self.done_reason.take());
        let Some(said) = chunk.message else { return };
        if let Some(thinking) = said.thinking.filter(|thinking| !thinking.is_empty()) {
            self.thinking.push_str(&thinking);
            if let Some(sink) = sink {
                sink.thinking(&thinking);
            }
        }
        if let Some(text) = said.content.filter(|text| !text.is_empty()) {
            self.text.push_str(&text);
            if let Some(sink) = sink {
                sink.text(&text);
            }
        }
        self.calls.extend(said.tool_calls.unwrap_or_default().into_iter().map(CallDraft::from));
    }

    pub(crate) fn finish(self, endpoint: &Endpoint) -> Result<ModelResponse, ProviderError> {
        let stop_reason = match self.done_reason.as_deref() {
            // Done without a reason is a runner that lost its connection.
            None | Some("") => return Err(ProviderError::stream_truncated("a done reason")),
            Some("stop") if !self.calls.is_empty() => StopReason::ToolUse,
            Some("stop") => StopReason::End,
            Some("length") => StopReason::MaxTokens,
            // It found nothing to answer, as in a conversation without a user; asking again is as
            // useless.
            Some(reason @ ("load" | "unload")) => {
                let why = format!("there was nothing to answer, the model did only `{reason}`");
                return Err(ProviderError::invalid_request(why, None));
            }
            Some(word) => endpoint.unknown_stop(word),
        };
        Ok(ModelResponse {
            text: self.text.into(),
            thinking: (!self.thinking.is_empty()).then(|| self.thinking.into()),
            provider_state: None,
            tool_calls: finish_calls(self.calls, &stop_reason),
            stop_reason,
            usage: self.usage.unwrap_or_default(),
        })
    }
}
