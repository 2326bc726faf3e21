//! Providers that each do one thing wrong, and what the conformance suite says of it.

use std::panic::resume_unwind;
use std::sync::Arc;

use async_trait::async_trait;
use backstop::OpenAi;
use layer0::message::{StopReason, ToolCall};
use layer0::usage::TokenUsage;
use provider::{ModelRequest, ModelResponse, Provider, ProviderError, StreamSink};
use provider_http::Timeouts;
use serde_json::json;
use testkit::{KEY, provider_conformance};

/// What a provider may do wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Defect {
    AnyReasonIsTheEnd,
    ArgumentsBecomeNull,
    Detached,
    FailuresCostNothing,
    ForgetsConversation,
    ForgetsSettings,
    ForgetsTools,
    Nameless,
    NeverStreams,
    NoModelName,
    None,
    NoStatus,
    NoUsageToTheSink,
    ShowsTheKey,
    Thoughtless,
    TokensFromNowhere,
    Unkeyed,
}

/// All of them, with what the suite says.
const DEFECTS: [(Defect, &str); 16] = [
    (Defect::AnyReasonIsTheEnd, "the reason to stop: MaxTokens"),
    (Defect::ArgumentsBecomeNull, "arguments that are no JSON are given back"),
    (Defect::Detached, "a dropped call closes its connection"),
    (Defect::FailuresCostNothing, "the sink is told what a failure cost"),
    (Defect::ForgetsConversation, "the system message is not sent"),
    (Defect::ForgetsSettings, "`max_output_tokens` is not sent"),
    (Defect::ForgetsTools, "the name of a tool is not sent"),
    (Defect::Nameless, "a provider has a name"),
    (Defect::NeverStreams, "what is streamed is what is answered"),
    (Defect::NoModelName, "a model has a name"),
    (Defect::NoStatus, "the sink is told the status"),
    (Defect::NoUsageToTheSink, "the sink is told what was billed"),
    (Defect::ShowsTheKey, "an error shows the key"),
    (Defect::Thoughtless, "thinking"),
    (Defect::TokensFromNowhere, "what was billed"),
    (Defect::Unkeyed, "no header carries it"),
];

/// The contract is worth what its suite notices.
///
/// Spec: P1, P7, P9, R8, E10
#[tokio::test]
async fn the_suite_notices_each_defect() {
    let suite = |defect| tokio::spawn(provider_conformance(testkit::openai::wire(maker(defect))));
    let running: Vec<_> =
        DEFECTS.iter().map(|(defect, says)| (suite(*defect), defect, says)).collect();
    for (suite, defect, says) in running {
        let panic = suite.await.expect_err(&format!("{defect:?} passes the suite")).into_panic();
        let said = match panic.downcast_ref::<String>() {
            Some(said) => said.as_str(),
            None => panic.downcast_ref::<&str>().copied().unwrap_or_default(),
        };
        assert!(said.contains(says), "{defect:?}: {said}");
    }
    if let Err(panicked) = suite(Defect::None).await {
        resume_unwind(panicked.into_panic());
    }
}

/// Returns what makes a provider with this defect; the suite takes functions that know nothing.
fn maker(defect: Defect) -> testkit::MakeProvider {
    macro_rules! of {
        ($($defect:ident)+) => {
            match defect {
                $(Defect::$defect => |url, timeouts| make(Defect::$defect, url, timeouts),)+
            }
        };
    }
    of! {
        AnyReasonIsTheEnd ArgumentsBecomeNull Detached FailuresCostNothing ForgetsConversation
        ForgetsSettings ForgetsTools Nameless NeverStreams NoModelName None NoStatus NoUsageToTheSink
        ShowsTheKey Thoughtless TokensFromNowhere Unkeyed
    }
}

fn make(defect: Defect, url: &str, timeouts: Timeouts) -> Arc<dyn Provider> {
    let openai = OpenAi::new("m").base_url(format!("{url}/v1")).timeouts(timeouts);
    let openai = if defect == Defect::Unkeyed { openai } else { openai.api_key(KEY) };
    Arc::new(Defective { defect, sound: Arc::new(openai.build().unwrap()) })
}

/// Does one thing wrong, and leaves the rest to a sound provider.
struct Defective {
    defect: Defect,
    sound: Arc<dyn Provider>,
}

impl Defective {
    fn asked(&self, request: &ModelRequest) -> ModelRequest {
        let mut asked = request.clone();
        match self.defect {
            Defect::ForgetsConversation => asked.messages = testkit::hello().messages,
            Defect::ForgetsSettings => asked.settings = Default::default(),
            Defect::ForgetsTools => asked.tools = Arc::default(),
            _ => {}
        }
        let sink = asked.sink.take();
        asked.sink = sink.map(|sink| Arc::new(Told { defect: self.defect, sink }) as _);
        asked
    }

    fn told(&self, request: &ModelRequest, mut said: ModelResponse) -> ModelResponse {
        let has_calls = !said.tool_calls.is_empty();
        match self.defect {
            Defect::AnyReasonIsTheEnd if !has_calls => said.stop_reason = StopReason::End,
            Defect::ArgumentsBecomeNull => {
                let calls = said.tool_calls.iter().cloned();
                let read = |call: ToolCall| match call.arguments.is_object() {
                    true => call,
                    false => ToolCall { arguments: json!(null).into(), ..call },
                };
                said.tool_calls = calls.map(read).collect();
            }
            Defect::FailuresCostNothing => {
                if let Some(sink) = &request.sink {
                    sink.usage(said.usage);
                }
            }
            Defect::Thoughtless => said.thinking = None,
            Defect::TokensFromNowhere => said.usage.cached_tokens = 99,
            _ => {}
        }
        said
    }

    async fn ask(
        &self,
        request: &ModelRequest,
        streamed: bool,
    ) -> Result<ModelResponse, ProviderError> {
        let (asked, sound) = (self.asked(request), Arc::clone(&self.sound));
        let answer = async move { testkit::send(&*sound, &asked, streamed).await };
        let result = match self.defect {
            Defect::Detached => tokio::spawn(answer).await.unwrap(),
            _ => answer.await,
        };
        match result {
            Err(ProviderError::AuthFailed(why)) if self.defect == Defect::ShowsTheKey => {
                Err(ProviderError::AuthFailed(format!("{why} (asked with {KEY})")))
            }
            result => result.map(|said| self.told(request, said)),
        }
    }
}

#[async_trait]
impl Provider for Defective {
    fn name(&self) -> &str {
        if self.defect == Defect::Nameless { "" } else { self.sound.name() }
    }

    fn model(&self) -> &str {
        if self.defect == Defect::NoModelName { "" } else { self.sound.model() }
    }

    async fn complete(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        self.ask(request, false).await
    }

    async fn stream(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        self.ask(request, true).await
    }
}

/// Passes on what it is told, but for what its defect keeps back.
struct Told {
    defect: Defect,
    sink: Arc<dyn StreamSink>,
}

impl StreamSink for Told {
    fn text(&self, piece: &str) {
        if self.defect != Defect::NeverStreams {
            self.sink.text(piece);
        }
    }

    fn thinking(&self, piece: &str) {
        self.sink.thinking(piece);
    }

    fn status(&self, status: u16) {
        if self.defect != Defect::NoStatus {
            self.sink.status(status);
        }
    }

    fn usage(&self, usage: TokenUsage) {
        // Usage of an answer is told when it is whole.
        if !matches!(self.defect, Defect::NoUsageToTheSink | Defect::FailuresCostNothing) {
            self.sink.usage(usage);
        }
    }
}
