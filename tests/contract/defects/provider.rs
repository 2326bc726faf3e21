//! Providers that break one promise each.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use backstop::OpenAi;
use backstop_provider::{
    ModelRequest, ModelResponse, ModelSettings, OutputSupport, Provider, ProviderError, StreamSink,
    UnsupportedSetting,
};
use backstop_provider_http::Timeouts;
use backstop_testkit::contract::Suite;
use backstop_testkit::{KEY, MakeProvider};
use layer0::JsonText;
use layer0::message::{Message, StopReason, ToolCall, Transcript};
use layer0::usage::TokenUsage;
use serde_json::{Value, json};

/// Lists defects, and what makes a provider with each: the suite takes functions that know nothing.
macro_rules! defects {
    ($($defect:ident => $trial:ident,)+) => {
        super::defects! { $($defect => $trial,)+ }

        fn maker(defect: Defect) -> MakeProvider {
            match defect {
                $(Defect::$defect => |url, timeouts| make(Defect::$defect, url, timeouts),)+
            }
        }
    };
}

defects! {
    AnyReasonIsTheEnd => reasons_to_stop_are_what_they_were,
    ArgumentsBecomeNull => arguments_that_are_no_json_are_given_back,
    ArgumentsThroughFloats => numbers_in_arguments_keep_their_text,
    AsksAgain => nothing_is_asked_but_once,
    Detached => a_dropped_call_closes_its_connection,
    EncodesHistoryTwice => arguments_are_sent_as_they_are,
    EveryRoleIsAPerson => roles_are_sent,
    EveryFailureIsTransient => failures_are_what_they_were,
    FailuresCostNothing => tokens_of_a_failure_are_heard,
    ForbiddenIsTransient => foreign_failures_are_what_their_status_says,
    ForgetsImages => images_are_sent,
    ForgetsTheForm => forms_of_answers_reach_the_model,
    ForgetsSettings => all_of_a_request_is_sent,
    ForgetsState => state_goes_back_to_whom_it_came_from,
    ForgetsTheFirstCall => answers_arrive_whole,
    ForgetsTheHint => nothing_is_asked_but_once,
    ForgetsToolImages => images_of_tools_are_sent_or_named,
    ForgetsTools => all_of_a_request_is_sent,
    ForgetsTranscript => all_of_a_request_is_sent,
    GivesStateToOthers => state_goes_back_to_whom_it_came_from,
    HidesFailedResults => failed_results_are_marked,
    LeaksCalls => nothing_is_left_of_the_call_before,
    LeaksText => nothing_is_left_of_the_call_before,
    LosesIds => answers_arrive_whole,
    MixesAnswers => answers_go_to_their_callers,
    NamesTheRun => runs_are_not_named_to_the_endpoint,
    Nameless => it_has_a_name,
    NeverStreams => pieces_are_passed_on_as_they_come,
    NeverTimesOut => what_breaks_may_be_tried_again,
    NoModelName => it_has_a_name,
    NoStatus => answers_arrive_whole,
    NoUsageToTheSink => answers_arrive_whole,
    NotFoundIsInvalid => foreign_failures_are_what_their_status_says,
    OneCallAtATime => calls_do_not_wait_for_each_other,
    RateLimitIsInvalid => foreign_failures_are_what_their_status_says,
    ReadsWithoutBound => bodies_are_bounded,
    ResetIsFinal => what_breaks_may_be_tried_again,
    ResultsAreOfTheFirstCall => results_name_their_call,
    ReversesCalls => answers_arrive_whole,
    SendsCallsReversed => calls_are_sent_in_their_order,
    ShowsTheKey => no_error_shows_the_key,
    StreamsWithoutBound => streams_are_bounded,
    StreamsAtTheEnd => pieces_are_passed_on_as_they_come,
    TakesAPart => no_part_is_taken_for_the_whole,
    TakesEverySetting => settings_are_sent_or_refused,
    Thoughtless => answers_arrive_whole,
    TokensFromNowhere => answers_arrive_whole,
    UnauthorizedIsInvalid => foreign_failures_are_what_their_status_says,
    Unkeyed => all_of_a_request_is_sent,
}

use Defect as D;

/// Spec: P1, P7, P9, R8, E10
#[test]
fn every_defect_of_a_provider_is_noticed() {
    super::check(DEFECTS, suite);
}

/// Over the protocol that has a form for what the defect is about.
fn suite(defect: Defect) -> Suite {
    match defect {
        D::ForgetsState | D::ForgetsToolImages | D::GivesStateToOthers | D::HidesFailedResults => {
            backstop_testkit::contract::provider(backstop_testkit::anthropic::wire(maker(defect)))
        }
        _ => backstop_testkit::contract::provider(backstop_testkit::openai::wire(maker(defect))),
    }
}

fn make(defect: Defect, url: &str, timeouts: Timeouts) -> Arc<dyn Provider> {
    let hour = Duration::from_secs(3_600);
    let timeouts = match defect {
        D::NeverTimesOut => Timeouts::all(hour),
        _ => timeouts,
    };
    let sound: Arc<dyn Provider> = match defect {
        D::ForgetsState | D::GivesStateToOthers | D::HidesFailedResults => {
            let anthropic = backstop::Anthropic::new("m").base_url(url).api_key(KEY);
            Arc::new(anthropic.timeouts(timeouts).build().unwrap())
        }
        _ => {
            let openai = OpenAi::new("m").base_url(format!("{url}/v1")).timeouts(timeouts);
            let openai = if defect == D::Unkeyed { openai } else { openai.api_key(KEY) };
            Arc::new(openai.build().unwrap())
        }
    };
    let address = url.trim_start_matches("http://").to_owned();
    let (said, turn) = (Mutex::default(), tokio::sync::Mutex::default());
    Arc::new(Defective { defect, address, sound, said, turn })
}

/// Does one thing wrong, and leaves the rest to a sound provider.
struct Defective {
    defect: Defect,
    address: String,
    sound: Arc<dyn Provider>,
    /// What was said last.
    said: Mutex<Option<ModelResponse>>,
    turn: tokio::sync::Mutex<()>,
}

impl Defective {
    fn message(&self, message: &Message) -> Message {
        let mut message = message.clone();
        match (self.defect, &mut message) {
            (D::EncodesHistoryTwice, Message::Assistant { tool_calls, .. }) => {
                let encode = |call: &ToolCall| {
                    let quoted = JsonText::string(call.arguments.get()).to_string();
                    ToolCall::new(call.id.clone(), &*call.name, JsonText::string(&quoted))
                };
                *tool_calls = tool_calls.iter().map(encode).collect();
            }
            (D::EveryRoleIsAPerson, Message::Assistant { content, tool_calls, .. })
                if tool_calls.is_empty() =>
            {
                message = Message::user(Arc::clone(content));
            }
            (D::ForgetsImages, Message::User { images, .. }) => *images = Arc::default(),
            (D::ForgetsToolImages, Message::Tool { images, .. }) => *images = Arc::default(),
            (D::ForgetsState, Message::Assistant { provider_state, .. }) => *provider_state = None,
            (D::GivesStateToOthers, Message::Assistant { provider_state: Some(state), .. }) => {
                state.provider = self.sound.name().into();
            }
            (D::HidesFailedResults, Message::Tool { is_error, .. }) => *is_error = false,
            (D::SendsCallsReversed, Message::Assistant { tool_calls, .. }) => {
                *tool_calls = tool_calls.iter().rev().cloned().collect();
            }
            (D::ResultsAreOfTheFirstCall, Message::Tool { tool_call_id, .. }) => {
                *tool_call_id = "call_1".into();
            }
            _ => {}
        }
        message
    }

    fn asked(&self, request: &ModelRequest) -> ModelRequest {
        let mut asked = request.clone();
        match self.defect {
            D::ForgetsTranscript => asked.messages = backstop_testkit::hello().messages,
            D::ForgetsSettings => asked.settings = Default::default(),
            D::ForgetsTheForm => asked.output = None,
            D::NamesTheRun => {
                if let Some(run) = &request.run {
                    asked.messages.push(Message::user(run.as_str()));
                }
            }
            D::ForgetsTools => asked.tools = Arc::default(),
            D::TakesEverySetting => asked.settings.seed = None,
            _ => {
                let mut messages = Transcript::default();
                for message in request.messages.messages() {
                    messages.push(self.message(message));
                }
                asked.messages = messages;
            }
        }
        let sink = asked.sink.take();
        asked.sink = sink.map(|sink| Arc::new(Told { defect: self.defect, sink }) as _);
        asked
    }

    fn told(&self, request: &ModelRequest, mut said: ModelResponse) -> ModelResponse {
        let has_calls = !said.tool_calls.is_empty();
        let calls = said.tool_calls.iter().cloned();
        match self.defect {
            D::AnyReasonIsTheEnd if !has_calls => said.stop_reason = StopReason::End,
            D::ArgumentsBecomeNull => {
                let read = |call: ToolCall| match call.arguments.is_object() {
                    true => call,
                    false => ToolCall::new(call.id, call.name, json!(null)),
                };
                said.tool_calls = calls.map(read).collect();
            }
            D::ArgumentsThroughFloats => {
                let read = |call: ToolCall| {
                    ToolCall::new(call.id, call.name, floats(call.arguments.value()))
                };
                said.tool_calls = calls.map(read).collect();
            }
            D::FailuresCostNothing => {
                if let Some(sink) = &request.sink {
                    sink.usage(said.usage.unwrap_or_default());
                }
            }
            D::ForgetsTheFirstCall => said.tool_calls = calls.skip(1).collect(),
            D::LosesIds => {
                let nameless = |call: ToolCall| ToolCall::new("", call.name, call.arguments);
                said.tool_calls = calls.map(nameless).collect();
            }
            D::ReversesCalls => said.tool_calls = calls.rev().collect(),
            D::StreamsAtTheEnd => {
                if let Some(sink) = &request.sink {
                    sink.text(&said.text);
                }
            }
            D::Thoughtless => said.thinking = None,
            D::TokensFromNowhere => said.usage.get_or_insert_default().cached_tokens = 99,
            _ => {}
        }
        let before = self.said.lock().unwrap().replace(said.clone());
        match (self.defect, before) {
            (D::LeaksCalls, Some(before)) if !has_calls => said.tool_calls = before.tool_calls,
            (D::LeaksText, Some(before)) => {
                said.text = format!("{}{}", before.text, said.text).into();
            }
            _ => {}
        }
        said
    }

    fn failed(&self, error: ProviderError) -> Result<ModelResponse, ProviderError> {
        let why = || "told otherwise".to_owned();
        let kept = self.said.lock().unwrap().clone();
        Err(match (self.defect, error) {
            (D::ShowsTheKey, ProviderError::AuthFailed(why)) => {
                ProviderError::AuthFailed(format!("{why} (asked with {KEY})"))
            }
            (D::EveryFailureIsTransient, _) => ProviderError::transient(why(), None),
            (D::ForbiddenIsTransient, error @ ProviderError::AuthFailed(_)) => {
                let is_forbidden = format!("{error:?}").contains("403");
                if is_forbidden { ProviderError::transient(why(), None) } else { error }
            }
            (D::UnauthorizedIsInvalid, ProviderError::AuthFailed(_))
            | (D::NotFoundIsInvalid, ProviderError::NotFound { .. })
            | (D::RateLimitIsInvalid, ProviderError::RateLimited { .. }) => {
                ProviderError::invalid_request(why(), None)
            }
            (D::ForgetsTheHint, ProviderError::RateLimited { .. }) => {
                ProviderError::rate_limited(why(), None)
            }
            (D::ResetIsFinal, ProviderError::StreamInterrupted { .. }) => {
                ProviderError::invalid_request(why(), None)
            }
            (D::TakesAPart, error) if error.is_retryable() => match kept {
                Some(kept) => return Ok(kept),
                None => return Ok(part()),
            },
            (_, error) => error,
        })
    }

    async fn ask(
        &self,
        request: &ModelRequest,
        streamed: bool,
    ) -> Result<ModelResponse, ProviderError> {
        let (asked, sound) = (self.asked(request), Arc::clone(&self.sound));
        let reads_all = match self.defect {
            D::ReadsWithoutBound => !streamed,
            D::StreamsWithoutBound => streamed,
            _ => false,
        };
        if reads_all {
            let address = self.address.clone();
            tokio::task::spawn_blocking(move || read_all(&address)).await.unwrap();
        }
        let again = (self.defect == D::AsksAgain).then(|| asked.clone());
        let answer = async move { backstop_testkit::send(&*sound, &asked, streamed).await };
        let result = match self.defect {
            D::Detached => tokio::spawn(answer).await.unwrap(),
            D::OneCallAtATime => {
                let _turn = self.turn.lock().await;
                answer.await
            }
            _ => answer.await,
        };
        let result = match (result, again) {
            (Err(ProviderError::RateLimited { .. }), Some(again)) => {
                backstop_testkit::send(&*self.sound, &again, streamed).await
            }
            (result, _) => result,
        };
        match result {
            Ok(said) if self.defect == D::MixesAnswers => {
                *self.said.lock().unwrap() = Some(said);
                tokio::task::yield_now().await;
                Ok(self.said.lock().unwrap().clone().unwrap())
            }
            Ok(said) => Ok(self.told(request, said)),
            Err(error) => self.failed(error),
        }
    }
}

fn part() -> ModelResponse {
    let said = json!({
        "text": "", "thinking": null, "tool_calls": [], "stop_reason": "end",
        "usage": { "input_tokens": 0, "output_tokens": 0, "cached_tokens": 0 },
    });
    serde_json::from_value(said).unwrap()
}

fn floats(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(floats).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(name, field)| (name, floats(field))).collect()
        }
        Value::Number(number) => json!(number.as_f64()),
        other => other,
    }
}

/// Asks a server, and reads until nothing more comes.
fn read_all(address: &str) {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!("GET / HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let mut buffer = vec![0; 1 << 20];
    while stream.read(&mut buffer).is_ok_and(|count| count > 0) {}
}

#[async_trait]
impl Provider for Defective {
    fn name(&self) -> &str {
        if self.defect == D::Nameless { "" } else { self.sound.name() }
    }

    fn model(&self) -> &str {
        if self.defect == D::NoModelName { "" } else { self.sound.model() }
    }

    fn check_settings(&self, settings: &ModelSettings) -> Result<(), UnsupportedSetting> {
        self.sound.check_settings(settings)
    }

    fn output_support(&self, request: &ModelRequest) -> OutputSupport {
        self.sound.output_support(request)
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
        if !matches!(self.defect, D::NeverStreams | D::StreamsAtTheEnd) {
            self.sink.text(piece);
        }
    }

    fn thinking(&self, piece: &str) {
        self.sink.thinking(piece);
    }

    fn status(&self, status: u16) {
        if self.defect != D::NoStatus {
            self.sink.status(status);
        }
    }

    fn usage(&self, usage: TokenUsage) {
        // Usage of an answer is told when it is whole.
        if !matches!(self.defect, D::NoUsageToTheSink | D::FailuresCostNothing) {
            self.sink.usage(usage);
        }
    }
}
