//! Recording and replay of model calls.

mod failure;
mod lock;
mod told;

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use layer0::message::Message;
use layer0::{JsonText, ToolSpec};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    ModelRequest, ModelResponse, ModelSettings, OutputSchema, OutputSupport, Provider,
    ProviderError, UnsupportedSetting,
};

pub use failure::RecordedFailure;
pub use told::RecordedStream;

use lock::lock;
use told::Listening;

/// A request and its result: one line of a recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Exchange {
    /// Messages, tools and settings, as JSON.
    pub request: JsonText,
    /// Whether the call was to [`Provider::stream`].
    pub streamed: bool,
    /// The values that the sink received before the end.
    pub told: RecordedStream,
    /// The result.
    pub answer: RecordedAnswer,
    /// Whether the provider reports all billed tokens, [`Provider::reports_all_usage`].
    #[serde(default)]
    pub reports_all_usage: bool,
}

/// The outcome of a recorded attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RecordedAnswer {
    /// A response.
    Answered(ModelResponse),
    /// A failure.
    Failed(RecordedFailure),
    /// No outcome: the call was dropped, or had not ended yet. In a replay, it does not end either.
    Unanswered,
}

/// A function that removes secrets from a text before it is stored.
type Redact = Box<dyn Fn(&str) -> String + Send + Sync>;

/// A provider that records the calls to another one, or replays a recording strictly: each request
/// must equal the recorded one and use the same method, in the order in which calls began.
///
/// A replayed failure is the recorded one: its variant with all fields, and the texts of its
/// causes. A sink receives the same status, text, thinking and tokens, with the text in one piece.
/// A call that was dropped, for example by a timeout around it, waits to be dropped again.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use layer0::message::Transcript;
/// use backstop_provider::{ModelRequest, Provider, RecordedProvider, ScriptedProvider};
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
    tape: Tape,
    redact: Redact,
}

enum Tape {
    Records { inner: Arc<dyn Provider>, kept: Mutex<Vec<OpenExchange>> },
    Replays { exchanges: Vec<Exchange>, next: AtomicUsize },
}

/// An exchange that may not have ended. Its index is that of its call in the order of beginning.
struct OpenExchange {
    request: JsonText,
    streamed: bool,
    told: Arc<Mutex<RecordedStream>>,
    answer: RecordedAnswer,
    reports_all_usage: bool,
}

impl RecordedProvider {
    /// Makes a provider that records the calls to this one. Every text goes through `redact` before
    /// it is stored.
    pub fn recording(
        inner: Arc<dyn Provider>,
        redact: impl Fn(&str) -> String + Send + Sync + 'static,
    ) -> Self {
        let tape = Tape::Records { inner, kept: Mutex::default() };
        Self { tape, redact: Box::new(redact) }
    }

    /// Makes a provider that replays a recording, made by [`RecordedProvider::to_json_lines`] with
    /// the same `redact`.
    ///
    /// # Errors
    ///
    /// Fails if a line is not an exchange.
    pub fn replaying(
        lines: &str,
        redact: impl Fn(&str) -> String + Send + Sync + 'static,
    ) -> Result<Self, serde_json::Error> {
        let lines = lines.lines().filter(|line| !line.trim().is_empty());
        let exchanges = lines.map(serde_json::from_str).collect::<Result<_, _>>()?;
        let tape = Tape::Replays { exchanges, next: AtomicUsize::new(0) };
        Ok(Self { tape, redact: Box::new(redact) })
    }

    /// Returns the exchanges so far, one JSON object per line, in the order in which calls began.
    #[must_use]
    pub fn to_json_lines(&self) -> String {
        let exchanges = match &self.tape {
            Tape::Records { kept, .. } => {
                lock(kept).iter().map(|kept| self.to_exchange(kept)).collect()
            }
            Tape::Replays { exchanges, .. } => exchanges.clone(),
        };
        let lines = exchanges.iter().filter_map(|exchange| serde_json::to_string(exchange).ok());
        lines.map(|line| line + "\n").collect()
    }

    /// Returns the number of recorded exchanges that were not replayed yet.
    #[must_use]
    pub fn remaining(&self) -> usize {
        match &self.tape {
            Tape::Records { kept, .. } => lock(kept).len(),
            Tape::Replays { exchanges, next } => {
                exchanges.len().saturating_sub(next.load(Ordering::Relaxed))
            }
        }
    }

    async fn exchange(
        &self,
        request: &ModelRequest,
        streamed: bool,
    ) -> Result<ModelResponse, ProviderError> {
        match &self.tape {
            Tape::Records { inner, kept } => self.record(&**inner, kept, request, streamed).await,
            Tape::Replays { exchanges, next } => {
                let place = next.fetch_add(1, Ordering::Relaxed);
                self.replay(exchanges, place, request, streamed).await
            }
        }
    }

    async fn record(
        &self,
        inner: &dyn Provider,
        kept: &Mutex<Vec<OpenExchange>>,
        request: &ModelRequest,
        streamed: bool,
    ) -> Result<ModelResponse, ProviderError> {
        let (sink, told) = Listening::beside(request.sink.clone());
        let place = {
            let request = self.redact_json(&as_json(request));
            let mut kept = lock(kept);
            let reports_all_usage = inner.reports_all_usage();
            let answer = RecordedAnswer::Unanswered;
            kept.push(OpenExchange { request, streamed, told, answer, reports_all_usage });
            kept.len() - 1
        };
        let request = ModelRequest { sink: Some(Arc::new(sink)), ..request.clone() };
        let result = match streamed {
            true => inner.stream(&request).await,
            false => inner.complete(&request).await,
        };
        let answer = match &result {
            Ok(response) => RecordedAnswer::Answered(response.clone()),
            Err(error) => RecordedAnswer::Failed(error.into()),
        };
        let answer = JsonText::from_value(&answer)
            .and_then(|answer| self.redact_json(&answer).read())
            .map_err(|error| ProviderError::Other(error.into()))?;
        lock(kept)[place].answer = answer;
        result
    }

    async fn replay(
        &self,
        exchanges: &[Exchange],
        place: usize,
        request: &ModelRequest,
        streamed: bool,
    ) -> Result<ModelResponse, ProviderError> {
        let refused = |why: String| Err(ProviderError::Other(why.into()));
        let Some(exchange) = exchanges.get(place) else {
            return refused(format!("the recording has {} requests", exchanges.len()));
        };
        let number = place + 1;
        if exchange.streamed != streamed {
            let way = |streamed| if streamed { "as a stream" } else { "whole" };
            return refused(format!(
                "request {number} was recorded {} and is asked for {}",
                way(exchange.streamed),
                way(streamed),
            ));
        }
        let asked = self.redact_json(&as_json(request));
        if let Some(part) = difference(&exchange.request, &asked) {
            return refused(format!("request {number} differs from the recorded one at `{part}`"));
        }
        if let Some(sink) = &request.sink {
            exchange.told.tell(&**sink);
        }
        match &exchange.answer {
            RecordedAnswer::Answered(response) => Ok(response.clone()),
            RecordedAnswer::Failed(failure) => Err(failure.into()),
            RecordedAnswer::Unanswered => std::future::pending().await,
        }
    }

    fn to_exchange(&self, kept: &OpenExchange) -> Exchange {
        Exchange {
            request: kept.request.clone(),
            streamed: kept.streamed,
            told: lock(&kept.told).redact(&self.redact),
            answer: kept.answer.clone(),
            reports_all_usage: kept.reports_all_usage,
        }
    }

    fn redact_json(&self, text: &JsonText) -> JsonText {
        text.map_strings(&mut |text| (self.redact)(text).into())
    }
}

impl fmt::Debug for RecordedProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordedProvider")
            .field("records", &matches!(self.tape, Tape::Records { .. }))
            .field("left", &self.remaining())
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Provider for RecordedProvider {
    fn name(&self) -> &str {
        match &self.tape {
            Tape::Records { inner, .. } => inner.name(),
            Tape::Replays { .. } => "recorded",
        }
    }

    fn model(&self) -> &str {
        match &self.tape {
            Tape::Records { inner, .. } => inner.model(),
            Tape::Replays { .. } => "recorded",
        }
    }

    fn check_settings(&self, settings: &ModelSettings) -> Result<(), UnsupportedSetting> {
        match &self.tape {
            Tape::Records { inner, .. } => inner.check_settings(settings),
            // The whole request is compared, settings included.
            Tape::Replays { .. } => Ok(()),
        }
    }

    fn output_support(&self, request: &ModelRequest) -> OutputSupport {
        match &self.tape {
            Tape::Records { inner, .. } => inner.output_support(request),
            Tape::Replays { exchanges, next } => {
                // As it was during the recording.
                let exchange = exchanges.get(next.load(Ordering::Relaxed));
                let asked = exchange.map(|exchange| exchange.request.value());
                match asked.is_some_and(|asked| asked.get("output").is_some()) {
                    true => OutputSupport::Constrained,
                    false => OutputSupport::Prompt,
                }
            }
        }
    }

    fn reports_all_usage(&self) -> bool {
        match &self.tape {
            Tape::Records { inner, .. } => inner.reports_all_usage(),
            // All exchanges are those of one provider.
            Tape::Replays { exchanges, .. } => {
                exchanges.first().is_some_and(|exchange| exchange.reports_all_usage)
            }
        }
    }

    async fn complete(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        self.exchange(request, false).await
    }

    async fn stream(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        self.exchange(request, true).await
    }
}

fn as_json(request: &ModelRequest) -> JsonText {
    #[derive(Serialize)]
    struct RequestJson<'r> {
        messages: &'r [Arc<Message>],
        tools: &'r [ToolSpec],
        #[serde(flatten)]
        settings: &'r ModelSettings,
        #[serde(skip_serializing_if = "Option::is_none")]
        output: Option<&'r OutputSchema>,
    }
    let asked = RequestJson {
        messages: request.messages.messages(),
        tools: &request.tools,
        settings: &request.settings,
        output: request.output.as_ref(),
    };
    JsonText::from_value(&asked).unwrap_or_default()
}

/// Returns the JSON pointer of the first different part.
fn difference(recorded: &JsonText, asked: &JsonText) -> Option<String> {
    let inside = || different_part(&recorded.value(), &asked.value(), String::new());
    (recorded != asked).then(|| inside().unwrap_or_default())
}

fn different_part(recorded: &Value, asked: &Value, at: String) -> Option<String> {
    match (recorded, asked) {
        (Value::Array(recorded), Value::Array(asked)) => {
            let mut parts = recorded.iter().zip(asked).enumerate();
            let inside = parts.find_map(|(index, (one, other))| {
                different_part(one, other, format!("{at}/{index}"))
            });
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
                different_part(&get(recorded, key), &get(asked, key), format!("{at}/{key}"))
            })
        }
        _ if recorded == asked => None,
        _ => Some(at),
    }
}
