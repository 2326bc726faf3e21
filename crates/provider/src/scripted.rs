use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{Clock, SystemClock};
use layer0::JsonText;
use layer0::message::{Message, StopReason, ToolCall};
use serde_json::Value;

use crate::{
    ModelRequest, ModelResponse, ModelSettings, Provider, ProviderError, ScriptedAnswer,
    UnsupportedSetting,
};
use layer0::code;
use layer0::failure::{Effect, Facts, Failure};

/// The error that a script has fewer answers than requests.
///
/// Retry: never. Effect: none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("script exhausted: request {request}, and answers for {answers}")]
#[non_exhaustive]
pub struct ScriptExhausted {
    /// The number of answers in the script.
    pub answers: usize,
    /// The number of the request without an answer: 1, 2, ….
    pub request: usize,
}

impl Failure for ScriptExhausted {
    fn facts(&self) -> Facts {
        Facts::never(code::PROVIDER_OTHER, Effect::None)
    }
}

/// A provider that answers from a list or a function, with one answer per attempt.
///
/// With more requests than its list has answers, it fails with [`ProviderError::Other`] around
/// [`ScriptExhausted`]. In texts and arguments, `${error_id.N}` and `${result_id.N}` are replaced
/// by the N-th distinct id in the tool messages of the conversation.
///
/// ```
/// use backstop_provider::{ModelRequest, Provider, ScriptedAnswer, ScriptedProvider};
///
/// let model = ScriptedProvider::from_fn(|request| {
///     ScriptedAnswer::saying(format!("{} messages", request.messages.messages().len()))
/// });
/// # let rt = tokio::runtime::Builder::new_current_thread().build()?;
/// let asked = model.requests();
/// let answer = rt.block_on(model.complete(&ModelRequest::new(Default::default())))?;
/// assert_eq!(&*answer.text, "0 messages");
/// assert_eq!(asked.all().len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ScriptedProvider {
    answers: AnswerScript,
    next: AtomicUsize,
    /// Recorded from the first call of `ScriptedProvider::requests`.
    requests: OnceLock<ScriptedRequests>,
    clock: Arc<dyn Clock>,
}

/// The requests to a [`ScriptedProvider`]. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct ScriptedRequests(Arc<Mutex<Vec<ModelRequest>>>);

impl ScriptedRequests {
    /// Returns all requests so far, oldest first, one per attempt.
    #[must_use]
    pub fn all(&self) -> Vec<ModelRequest> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn push(&self, request: &ModelRequest) {
        // The sink is not part of the request.
        let request = ModelRequest { sink: None, ..request.clone() };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(request);
    }
}

enum AnswerScript {
    Listed(Arc<[ScriptedAnswer]>),
    Made(Box<dyn Fn(&ModelRequest) -> ScriptedAnswer + Send + Sync>),
}

impl ScriptedProvider {
    /// Makes a provider with these answers.
    pub fn new(answers: impl Into<Arc<[ScriptedAnswer]>>) -> Self {
        Self::answering(AnswerScript::Listed(answers.into()))
    }

    /// Makes a provider whose answers are computed from its requests.
    pub fn from_fn(
        answer: impl Fn(&ModelRequest) -> ScriptedAnswer + Send + Sync + 'static,
    ) -> Self {
        Self::answering(AnswerScript::Made(Box::new(answer)))
    }

    fn answering(answers: AnswerScript) -> Self {
        let (next, requests) = (AtomicUsize::new(0), OnceLock::new());
        Self { answers, next, requests, clock: Arc::new(SystemClock) }
    }

    /// Starts recording requests, and returns a reader for use while an agent owns the provider.
    pub fn requests(&self) -> ScriptedRequests {
        self.requests.get_or_init(ScriptedRequests::default).clone()
    }

    /// Makes a provider that answers with these texts, one per call.
    pub fn saying<T: Into<Arc<str>>>(texts: impl IntoIterator<Item = T>) -> Self {
        Self::new(texts.into_iter().map(ScriptedAnswer::saying).collect::<Vec<_>>())
    }

    /// Makes a provider that calls one tool, then answers with `text`.
    pub fn calling(tool: &str, arguments: Value, text: &str) -> Self {
        Self::new(vec![ScriptedAnswer::calling(tool, arguments), ScriptedAnswer::saying(text)])
    }

    /// Sets the clock for delays instead of the system's.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Starts with the answer at this index, for a run that resumes.
    #[must_use]
    pub fn starting_at(self, index: usize) -> Self {
        self.next.store(index, Ordering::Relaxed);
        self
    }

    async fn answer(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        if let Some(requests) = self.requests.get() {
            requests.push(request);
        }
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        let answer = match &self.answers {
            AnswerScript::Listed(answers) => answers.get(index).map(Cow::Borrowed),
            AnswerScript::Made(answer) => Some(Cow::Owned(answer(request))),
        };
        let Some(answer) = answer else {
            let answers = match &self.answers {
                AnswerScript::Listed(answers) => answers.len(),
                AnswerScript::Made(_) => 0,
            };
            let exhausted = ScriptExhausted { answers, request: index.saturating_add(1) };
            return Err(ProviderError::Other(exhausted.into()));
        };
        if answer.delay_ms > 0 {
            self.clock.sleep(Duration::from_millis(answer.delay_ms)).await;
        }
        let messages = request.messages.messages().iter();
        let ids = Placeholders::new(messages.filter_map(|message| match &**message {
            Message::Tool { content, .. } => Some(&**content),
            _ => None,
        }));
        let text: Arc<str> =
            answer.text.as_deref().map_or_else(Arc::default, |text| ids.fill(text));
        if let Some(sink) = &request.sink {
            if let Some(thinking) = &answer.thinking {
                sink.thinking(thinking);
            }
            text.split_inclusive(' ').for_each(|piece| sink.text(piece));
            if let Some(usage) = answer.usage {
                sink.usage(usage);
            }
        }
        if let Some(error) = &answer.error {
            return Err(error.into());
        }
        let tool_calls: Arc<[ToolCall]> = answer
            .tool_calls
            .iter()
            .map(|call| {
                ToolCall::new(
                    call.id.as_str(),
                    call.name.as_str(),
                    ids.fill_arguments(&call.arguments),
                )
            })
            .collect();
        let by_content = if tool_calls.is_empty() { StopReason::End } else { StopReason::ToolUse };
        Ok(ModelResponse {
            text,
            answer: None,
            thinking: answer.thinking.clone(),
            provider_state: None,
            tool_calls,
            stop_reason: answer.stop_reason.clone().unwrap_or(by_content),
            // A script without usage is free: rehearsals count scripted usage.
            usage: Some(answer.usage.unwrap_or_default()),
        })
    }
}

impl fmt::Debug for ScriptedProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedProvider").field("next", &self.next).finish_non_exhaustive()
    }
}

#[async_trait]
impl Provider for ScriptedProvider {
    fn name(&self) -> &str {
        "script"
    }

    fn model(&self) -> &str {
        "script"
    }

    /// Accepts every setting, as the answers are fixed.
    fn check_settings(&self, _: &ModelSettings) -> Result<(), UnsupportedSetting> {
        Ok(())
    }

    /// Returns `true`: a script states all usage.
    fn reports_all_usage(&self) -> bool {
        true
    }

    async fn complete(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        self.answer(request).await
    }
}

/// A substitution of `${error_id.N}` and `${result_id.N}` by the N-th distinct id of stored errors
/// and results in tool messages. The messages are read only if a text has a placeholder.
#[derive(Debug)]
pub struct Placeholders<I>(I);

impl<'a, I: Iterator<Item = &'a str> + Clone> Placeholders<I> {
    /// Creates a substitution from the contents of tool messages, oldest first.
    pub const fn new(tool_contents: I) -> Self {
        Self(tool_contents)
    }

    /// Returns the distinct ids with this prefix that tool messages mark as ids (`[Error ID: …]`),
    /// in order of appearance.
    fn with_prefix(&self, prefix: &str) -> Vec<&'a str> {
        let mut ids = Vec::new();
        for content in self.0.clone() {
            for (at, _) in content.match_indices(prefix) {
                // `err_` or `res_`, 8 digits, `_`, 6 digits, `_`, 6 hex digits.
                if content[..at].ends_with(" ID: ")
                    && let Some(id) = content.get(at..at + 26).filter(|id| looks_like_id(id))
                    && !ids.contains(&id)
                {
                    ids.push(id);
                }
            }
        }
        ids
    }

    /// Replaces placeholders in a text.
    #[must_use]
    pub fn fill(&self, text: &str) -> Arc<str> {
        if !text.contains("${") {
            return text.into();
        }
        let mut filled = text.to_owned();
        for (name, prefix) in [("error_id", "err_"), ("result_id", "res_")] {
            for (index, id) in self.with_prefix(prefix).iter().enumerate() {
                filled = filled.replace(&format!("${{{name}.{}}}", index + 1), id);
            }
        }
        filled.into()
    }

    /// Replaces placeholders in arguments of a model; a string is parsed as every adapter parses it.
    fn fill_arguments(&self, arguments: &Value) -> JsonText {
        if let Value::String(text) = arguments {
            let text = self.fill(text);
            return JsonText::parse(&text).unwrap_or_else(|_| JsonText::string(&text));
        }
        let written = JsonText::from(arguments);
        if written.get().contains("${") { self.fill_value(arguments).into() } else { written }
    }

    /// Replaces placeholders in every text of a value.
    #[must_use]
    pub fn fill_value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.fill(text).as_ref().to_owned()),
            Value::Array(items) => items.iter().map(|item| self.fill_value(item)).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(key, value)| (key.clone(), self.fill_value(value))).collect()
            }
            other => other.clone(),
        }
    }
}

fn looks_like_id(id: &str) -> bool {
    let mut parts = id.split('_').skip(1);
    let digits = |part: Option<&str>, count, hex| {
        part.is_some_and(|part| {
            part.len() == count
                && part.bytes().all(|b| b.is_ascii_digit() || hex && b.is_ascii_hexdigit())
        })
    };
    digits(parts.next(), 8, false)
        && digits(parts.next(), 6, false)
        && digits(parts.next(), 6, true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use layer0::Failure;
    use layer0::message::Transcript;
    use serde_json::json;

    #[tokio::test]
    async fn an_exhausted_script_is_not_retryable() {
        let provider = ScriptedProvider::saying(["one"]);
        let request = ModelRequest::new(Transcript::default());
        assert_eq!(&*provider.complete(&request).await.unwrap().text, "one");
        let error = provider.complete(&request).await.unwrap_err();
        assert_eq!(error.code(), "provider.other");
        assert!(!error.is_retryable());
        let chain = layer0::failure::chain(&error);
        assert_eq!(chain[1], "script exhausted: request 2, and answers for 1");
        assert!(layer0::failure::hint(&error).contains("add an answer"));
    }

    /// Spec: P12
    #[tokio::test]
    async fn arguments_scripted_as_text_keep_it() {
        for (scripted, read) in [
            (json!(r#"{"x": 3.10}"#), r#"{"x":3.10}"#),
            (json!({"x": 3.5}), r#"{"x":3.5}"#),
            (json!("{broken"), r#""{broken""#),
        ] {
            let provider = ScriptedProvider::calling("t", scripted, "");
            let response = provider.complete(&ModelRequest::new(Transcript::default())).await;
            assert_eq!(response.unwrap().tool_calls[0].arguments.get(), read);
        }
    }

    #[tokio::test]
    async fn ids_of_stored_errors_are_filled_in() {
        let mut messages = Transcript::default();
        messages.push(Message::tool(
            "c1".into(),
            "Tool 'x' failed: y\n[Error ID: err_20260101_000000_00ff00]",
            true,
        ));
        messages.push(Message::tool(
            "c2".into(),
            "again [Error ID: err_20260101_000000_00ff00], not err_20260101_000000_00ffff",
            true,
        ));
        messages.push(Message::tool(
            "c3".into(),
            "then [Error ID: err_20260101_000000_00ff01]",
            true,
        ));
        let provider = ScriptedProvider::calling(
            "get_error_detail",
            json!({"error_id": "${error_id.2}", "not": ["${error_id.3}"]}),
            "",
        );
        let response = provider.complete(&ModelRequest::new(messages)).await.unwrap();
        assert_eq!(
            response.tool_calls[0].arguments,
            json!({"error_id": "err_20260101_000000_00ff01", "not": ["${error_id.3}"]})
        );
    }
}
