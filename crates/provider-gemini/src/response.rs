//! What comes back in one piece, and the parts that a stream shares with it.

use layer0::message::{StatePart, StopReason};
use layer0::usage::TokenUsage;
use provider::{ModelResponse, ProviderError, StreamSink};
use provider_http::{Answer, CallDraft, Endpoint, finish_calls, lenient};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

/// An answer, or a piece of one: a stream has the same shape.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WireResponse {
    candidates: Option<Vec<Candidate>>,
    prompt_feedback: Option<PromptFeedback>,
    #[serde(default, deserialize_with = "lenient::maybe")]
    usage_metadata: Option<WireUsage>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate {
    #[serde(default, deserialize_with = "lenient::count")]
    index: Option<u64>,
    content: Option<Content>,
    #[serde(default, deserialize_with = "lenient::text")]
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Content {
    parts: Option<Vec<Part>>,
}

/// Text, a thought or a call; what only servers' tools produce has none of these.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part {
    #[serde(default, deserialize_with = "lenient::text")]
    text: Option<String>,
    #[serde(default, deserialize_with = "lenient::maybe")]
    thought: Option<bool>,
    function_call: Option<WireCall>,
    #[serde(default, deserialize_with = "lenient::text")]
    thought_signature: Option<String>,
}

/// What a signature of the model's thoughts came with, and goes back with.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Signed {
    Call,
    Text,
}

impl Signed {
    /// Returns the key that the signature is kept under.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Call => "call_signature",
            Self::Text => "text_signature",
        }
    }
}

#[derive(Deserialize)]
struct WireCall {
    /// Left out by most models.
    #[serde(default, deserialize_with = "lenient::text")]
    id: Option<String>,
    name: String,
    args: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PromptFeedback {
    #[serde(default, deserialize_with = "lenient::text")]
    block_reason: Option<String>,
    #[serde(default, deserialize_with = "lenient::text")]
    block_reason_message: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct WireUsage {
    #[serde(default, deserialize_with = "lenient::count")]
    prompt_token_count: Option<u64>,
    #[serde(default, deserialize_with = "lenient::count")]
    candidates_token_count: Option<u64>,
    #[serde(default, deserialize_with = "lenient::count")]
    thoughts_token_count: Option<u64>,
    #[serde(default, deserialize_with = "lenient::count")]
    cached_content_token_count: Option<u64>,
}

impl WireUsage {
    /// Takes what a later, cumulative count says anew.
    fn update(&mut self, later: &Self) {
        self.prompt_token_count = later.prompt_token_count.or(self.prompt_token_count);
        self.candidates_token_count = later.candidates_token_count.or(self.candidates_token_count);
        self.thoughts_token_count = later.thoughts_token_count.or(self.thoughts_token_count);
        self.cached_content_token_count =
            later.cached_content_token_count.or(self.cached_content_token_count);
    }

    /// Returns what was billed. The protocol counts cached tokens in, and thoughts apart.
    fn billed(&self) -> TokenUsage {
        TokenUsage {
            input_tokens: self.prompt_token_count.unwrap_or_default(),
            output_tokens: self
                .candidates_token_count
                .unwrap_or_default()
                .saturating_add(self.thoughts_token_count.unwrap_or_default()),
            cached_tokens: self.cached_content_token_count.unwrap_or_default(),
        }
    }
}

/// Reads a whole answer. Only usage goes to the sink: nobody waits for text that is there at once.
pub(crate) async fn read(
    endpoint: &Endpoint,
    answer: Answer<'_>,
    sink: Option<&dyn StreamSink>,
) -> Result<ModelResponse, ProviderError> {
    let response: WireResponse = answer.json().await?;
    let mut draft = Draft::default();
    draft.take(endpoint, response, sink, None)?;
    draft.finish(endpoint)
}

/// An answer that is being put together.
#[derive(Default)]
pub(crate) struct Draft {
    text: String,
    thinking: String,
    calls: Vec<CallDraft>,
    kept: Vec<StatePart>,
    usage: WireUsage,
    finish_reason: Option<String>,
}

impl Draft {
    /// Takes an answer, or the next piece of one. Usage goes to the first listener, what is said
    /// and thought to the second.
    pub(crate) fn take(
        &mut self,
        endpoint: &Endpoint,
        response: WireResponse,
        usage_sink: Option<&dyn StreamSink>,
        text_sink: Option<&dyn StreamSink>,
    ) -> Result<(), ProviderError> {
        if let Some(usage) = response.usage_metadata {
            self.usage.update(&usage);
            if let Some(sink) = usage_sink {
                sink.usage(self.usage.billed());
            }
        }
        if let Some(error) = response.prompt_feedback.and_then(|it| blocked(endpoint, it)) {
            return Err(error);
        }
        // More than one is answered only where more than one is asked for.
        let mut candidates = response.candidates.unwrap_or_default().into_iter();
        let candidate = candidates.find(|candidate| candidate.index.unwrap_or_default() == 0);
        let Some(candidate) = candidate else { return Ok(()) };
        let parts = candidate.content.and_then(|content| content.parts).unwrap_or_default();
        parts.into_iter().for_each(|part| self.push(part, text_sink));
        self.finish_reason = candidate.finish_reason.or(self.finish_reason.take());
        Ok(())
    }

    fn push(&mut self, part: Part, sink: Option<&dyn StreamSink>) {
        if let Some(signature) = part.thought_signature.filter(|it| !it.is_empty()) {
            // A stream may end with a text that is empty but for its signature.
            let (of, calls_before) = match &part.function_call {
                Some(_) => (Signed::Call, self.calls.len()),
                None => (Signed::Text, 0),
            };
            self.kept.push(StatePart {
                text_before: 0,
                calls_before,
                data: json!({ of.as_str(): signature }),
            });
        }
        if let Some(text) = part.text.filter(|text| !text.is_empty()) {
            let is_thought = part.thought == Some(true);
            let draft = if is_thought { &mut self.thinking } else { &mut self.text };
            draft.push_str(&text);
            match sink {
                Some(sink) if is_thought => sink.thinking(&text),
                Some(sink) => sink.text(&text),
                None => {}
            }
        }
        if let Some(call) = part.function_call {
            let mut draft = CallDraft::new(call.id.unwrap_or_default(), call.name);
            draft.take(call.args);
            self.calls.push(draft);
        }
    }

    pub(crate) fn finish(self, endpoint: &Endpoint) -> Result<ModelResponse, ProviderError> {
        let Some(reason) = self.finish_reason.filter(|reason| !reason.is_empty()) else {
            return Err(ProviderError::stream_truncated("a finish reason"));
        };
        let stop_reason = match read_finish_reason(endpoint, &reason) {
            // The protocol stops for tools as it does at the end.
            StopReason::End if !self.calls.is_empty() => StopReason::ToolUse,
            reason => reason,
        };
        Ok(ModelResponse {
            text: self.text.into(),
            thinking: (!self.thinking.is_empty()).then(|| self.thinking.into()),
            provider_state: endpoint.state_of(self.kept),
            tool_calls: finish_calls(self.calls, &stop_reason),
            stop_reason,
            usage: self.usage.billed(),
        })
    }
}

/// Says what a blocked prompt is, by the table as any other failure.
fn blocked(endpoint: &Endpoint, feedback: PromptFeedback) -> Option<ProviderError> {
    let reason = feedback.block_reason?;
    let message = match feedback.block_reason_message {
        Some(message) => format!("the prompt was blocked: `{reason}`: {message}"),
        None => format!("the prompt was blocked: `{reason}`"),
    };
    let body = json!({ "message": message, "promptFeedback": { "blockReason": reason } });
    Some(endpoint.failure(body, None))
}

/// Reads a finish reason; one that is not known is taken for no other.
fn read_finish_reason(endpoint: &Endpoint, reason: &str) -> StopReason {
    match reason {
        "STOP" => StopReason::End,
        "MAX_TOKENS" => StopReason::MaxTokens,
        "SAFETY"
        | "RECITATION"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "MODEL_ARMOR"
        | "LANGUAGE"
        | "ESCALATION"
        | "PUP_LIMITED_DISABLED"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION" => StopReason::ContentFilter,
        "MALFORMED_FUNCTION_CALL"
        | "UNEXPECTED_TOOL_CALL"
        | "MALFORMED_RESPONSE"
        | "TOO_MANY_TOOL_CALLS"
        | "MISSING_THOUGHT_SIGNATURE" => StopReason::Malformed,
        word => endpoint.unknown_stop(word),
    }
}
