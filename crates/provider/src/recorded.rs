//! Exchanges with a model, kept and given again.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use layer0::code;
use layer0::failure::{Failure, Retry, chain};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{ModelRequest, ModelResponse, Provider, ProviderError, TimeoutPhase};

/// What was asked and what came of it: one line of a recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Exchange {
    /// Messages, tools and settings, as JSON.
    pub request: Value,
    /// What came of it.
    pub answer: Answer,
}

/// What a recorded attempt ended with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Answer {
    /// An answer.
    Answered(ModelResponse),
    /// A failure.
    Failed(RecordedFailure),
}

/// A recorded failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedFailure {
    /// Its code.
    pub code: String,
    /// What it said, with its causes.
    pub message: String,
    /// The HTTP status.
    pub status: Option<u16>,
    /// The wait that was asked for, in milliseconds.
    pub retry_after_ms: Option<u64>,
}

/// Takes secrets out of a text before it is kept.
type Redact = Box<dyn Fn(&str) -> String + Send + Sync>;

/// Records what another provider is asked and answers, or gives a recording again, strictly: each
/// request has to be the recorded one, in the recorded order.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use layer0::message::Transcript;
/// use provider::{ModelRequest, Provider, RecordedProvider, ScriptedProvider};
///
/// let real = ScriptedProvider::saying(["42"]);
/// let recording = RecordedProvider::recording(Arc::new(real), ToOwned::to_owned);
/// let request = ModelRequest::new(Transcript::default());
/// recording.complete(&request).await?;
///
/// let again = RecordedProvider::replaying(&recording.to_json_lines(), ToOwned::to_owned)?;
/// assert_eq!(&*again.complete(&request).await?.text, "42");
/// assert!(again.complete(&request).await.is_err(), "there was no second request");
/// # Ok(())
/// # }
/// ```
pub struct RecordedProvider {
    /// Who is asked; `None` when a recording is given again.
    inner: Option<Arc<dyn Provider>>,
    exchanges: Mutex<Vec<Exchange>>,
    next: AtomicUsize,
    redact: Redact,
}

impl RecordedProvider {
    /// Records what this provider is asked and answers. Every text goes through `redact` before it is
    /// kept.
    pub fn recording(
        inner: Arc<dyn Provider>,
        redact: impl Fn(&str) -> String + Send + Sync + 'static,
    ) -> Self {
        Self {
            inner: Some(inner),
            exchanges: Mutex::default(),
            next: AtomicUsize::new(0),
            redact: Box::new(redact),
        }
    }

    /// Gives a recording again, which [`RecordedProvider::to_json_lines`] made with the same `redact`.
    ///
    /// # Errors
    ///
    /// When a line is no exchange.
    pub fn replaying(
        lines: &str,
        redact: impl Fn(&str) -> String + Send + Sync + 'static,
    ) -> Result<Self, serde_json::Error> {
        let lines = lines.lines().filter(|line| !line.trim().is_empty());
        let exchanges = lines.map(serde_json::from_str).collect::<Result<_, _>>()?;
        Ok(Self {
            inner: None,
            exchanges: Mutex::new(exchanges),
            next: AtomicUsize::new(0),
            redact: Box::new(redact),
        })
    }

    /// Returns the exchanges so far, one JSON object per line.
    #[must_use]
    pub fn to_json_lines(&self) -> String {
        let exchanges = self.exchanges.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = exchanges.iter().filter_map(|exchange| serde_json::to_string(exchange).ok());
        lines.map(|line| line + "\n").collect()
    }

    /// Returns how many recorded exchanges were not asked for yet.
    #[must_use]
    pub fn left(&self) -> usize {
        let exchanges = self.exchanges.lock().unwrap_or_else(PoisonError::into_inner);
        exchanges.len().saturating_sub(self.next.load(Ordering::Relaxed))
    }

    async fn exchange(
        &self,
        request: &ModelRequest,
        streamed: bool,
    ) -> Result<ModelResponse, ProviderError> {
        let Some(inner) = &self.inner else { return self.replayed(request) };
        let result = match streamed {
            true => inner.stream(request).await,
            false => inner.complete(request).await,
        };
        let answer = match &result {
            Ok(response) => Answer::Answered(response.clone()),
            Err(error) => Answer::Failed(error.into()),
        };
        let exchange = Exchange { request: as_json(request), answer };
        let kept = serde_json::to_value(&exchange)
            .map(|value| self.redacted(value))
            .and_then(serde_json::from_value);
        match kept {
            Ok(kept) => {
                self.exchanges.lock().unwrap_or_else(PoisonError::into_inner).push(kept);
                result
            }
            Err(error) => Err(ProviderError::Other(error.into())),
        }
    }

    fn replayed(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        let place = self.next.fetch_add(1, Ordering::Relaxed);
        let exchanges = self.exchanges.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(exchange) = exchanges.get(place) else {
            let why = format!("the recording has {} requests", exchanges.len());
            return Err(ProviderError::Other(why.into()));
        };
        let asked = self.redacted(as_json(request));
        if let Some(part) = difference(&exchange.request, &asked, String::new()) {
            let why = format!("request {} differs from the recorded one at `{part}`", place + 1);
            return Err(ProviderError::Other(why.into()));
        }
        match &exchange.answer {
            Answer::Failed(failure) => Err(failure.into()),
            Answer::Answered(response) => {
                if let Some(sink) = &request.sink {
                    response.thinking.iter().for_each(|thinking| sink.thinking(thinking));
                    sink.text(&response.text);
                    sink.usage(response.usage);
                }
                Ok(response.clone())
            }
        }
    }

    fn redacted(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String((self.redact)(&text)),
            Value::Array(items) => items.into_iter().map(|item| self.redacted(item)).collect(),
            Value::Object(fields) => {
                fields.into_iter().map(|(key, field)| (key, self.redacted(field))).collect()
            }
            other => other,
        }
    }
}

impl fmt::Debug for RecordedProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordedProvider")
            .field("records", &self.inner.is_some())
            .field("left", &self.left())
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Provider for RecordedProvider {
    fn name(&self) -> &str {
        self.inner.as_ref().map_or("recorded", |inner| inner.name())
    }

    fn model(&self) -> &str {
        self.inner.as_ref().map_or("recorded", |inner| inner.model())
    }

    async fn complete(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        self.exchange(request, false).await
    }

    async fn stream(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        self.exchange(request, true).await
    }
}

fn as_json(request: &ModelRequest) -> Value {
    json!({
        "messages": request.messages.messages(),
        "tools": request.tools,
        "max_output_tokens": request.settings.max_output_tokens,
        "temperature": request.settings.temperature,
    })
}

/// Returns the JSON pointer of the first part that differs.
fn difference(recorded: &Value, asked: &Value, at: String) -> Option<String> {
    match (recorded, asked) {
        (Value::Array(recorded), Value::Array(asked)) => {
            let mut parts = recorded.iter().zip(asked).enumerate();
            let inside = parts
                .find_map(|(index, (one, other))| difference(one, other, format!("{at}/{index}")));
            let length = recorded.len().min(asked.len());
            inside.or((recorded.len() != asked.len()).then(|| format!("{at}/{length}")))
        }
        (Value::Object(recorded), Value::Object(asked)) => {
            let keys = recorded.keys().chain(asked.keys());
            let null = Value::Null;
            let get = |fields: &serde_json::Map<String, Value>, key: &str| {
                fields.get(key).unwrap_or(&null).clone()
            };
            keys.into_iter().find_map(|key| {
                difference(&get(recorded, key), &get(asked, key), format!("{at}/{key}"))
            })
        }
        _ if recorded == asked => None,
        _ => Some(at),
    }
}

impl From<&ProviderError> for RecordedFailure {
    fn from(error: &ProviderError) -> Self {
        let retry_after = match error.retry() {
            Retry::After(wait) => u64::try_from(wait.as_millis()).ok(),
            Retry::Backoff | Retry::Never => None,
        };
        Self {
            code: error.code().to_owned(),
            message: chain(error).join(": "),
            status: error.status(),
            retry_after_ms: retry_after,
        }
    }
}

impl From<&RecordedFailure> for ProviderError {
    fn from(failure: &RecordedFailure) -> Self {
        let RecordedFailure { code, message, status, retry_after_ms } = failure;
        let (message, hint) = (message.clone(), retry_after_ms.map(Duration::from_millis));
        match code.as_str() {
            code::PROVIDER_AUTH_FAILED => Self::AuthFailed(message),
            code::PROVIDER_CIRCUIT_OPEN => Self::circuit_open(hint),
            code::PROVIDER_CONTENT_BLOCKED => Self::content_blocked(message),
            code::PROVIDER_CONTEXT_OVERFLOW => Self::context_overflow(message),
            code::PROVIDER_INVALID_REQUEST => Self::invalid_request(message, *status),
            code::PROVIDER_INVALID_RESPONSE => Self::InvalidResponse(message),
            code::PROVIDER_NOT_FOUND => Self::not_found(message),
            code::PROVIDER_QUOTA_EXHAUSTED => Self::quota_exhausted(message),
            code::PROVIDER_RATE_LIMITED => Self::rate_limited(message, hint),
            code::PROVIDER_STREAM_INTERRUPTED => Self::StreamInterrupted { source: message.into() },
            code::PROVIDER_STREAM_TRUNCATED => Self::stream_truncated("the recorded end marker"),
            code::PROVIDER_TIMEOUT => Self::timeout(TimeoutPhase::Upstream, None),
            code::PROVIDER_TRANSIENT => Self::transient(message, *status).with_retry_after(hint),
            _ => Self::Other(message.into()),
        }
    }
}
