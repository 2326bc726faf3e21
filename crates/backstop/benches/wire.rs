//! What the way to a model costs: a turn over HTTP beside a bare request, the layers around an
//! attempt, and decoding a stream.
//!
//! `cargo bench -p backstop --bench wire`.

#![allow(clippy::print_stdout, reason = "a program speaks to its terminal")]

use std::future::{Ready, ready};
use std::process::ExitCode;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use backstop::clock::{Clock, SystemClock};
use backstop::provider::ModelResponse;
use backstop::provider::ScriptedToolCall;
use backstop::retry::{
    AttemptTimeoutLayer, Breaker, BreakerConfig, Fallback, FallbackRequest, RetryBudget,
    RetryConfig, RetryPolicy, RetryRequest,
};
use backstop::{Agent, OpenAi, ProviderError, ScriptedAnswer, ToolError, tool};
use provider_http::{Endpoint, EndpointSettings, Timeouts};
use serde_json::json;
use testkit::Loopback;
use testkit::measure::{Goal, Row, Spread, interleaved, now, ratios};
use tower::{Service, ServiceBuilder, ServiceExt};

const ROUNDS: usize = 21;

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime of one thread can be made");
    println!("{}", Row::HEAD);
    let rows = [
        turns(&runtime, 1),
        turns(&runtime, TURNS),
        layers_time(&runtime),
        layers_allocations(&runtime),
        decoding(&runtime),
    ];
    rows.iter().for_each(|row| println!("{row}"));
    if rows.iter().all(Row::is_met) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Add two integers.
#[tool]
async fn add(x: i64, y: i64) -> Result<i64, ToolError> {
    Ok(x + y)
}

/// How many turns a long run has.
const TURNS: usize = 20;

/// A run of so many turns, and bare requests with the same bodies whose answers are read.
fn turns(runtime: &tokio::runtime::Runtime, turns: usize) -> Row {
    let says = ScriptedAnswer { text: Some("forty-two".into()), ..Default::default() };
    let says = testkit::openai::reply(&says, &json!({ "stream": true }));
    let server = Loopback::serving(move |request| {
        let messages = request.body["messages"].as_array().map_or(0, Vec::len);
        let turn = messages / 2;
        if turn + 1 >= turns {
            return says.clone();
        }
        let arguments = json!({ "x": turn, "y": 2 });
        let call = ScriptedToolCall { id: format!("call-{turn}"), name: "add".into(), arguments };
        let answer = ScriptedAnswer { tool_calls: vec![call], ..Default::default() };
        testkit::openai::reply(&answer, &json!({ "stream": true }))
    });
    let url = format!("{}/v1", server.url());
    let openai = OpenAi::new("m").base_url(&url).build().expect("it is configured");
    let agent = Agent::builder(openai).tool(add).build().expect("the agent is complete");
    runtime.block_on(agent.run("hello")).expect("the server answers");
    let bodies: Vec<String> =
        server.requests().iter().map(|request| request.body.to_string()).collect();
    assert_eq!(bodies.len(), turns);
    let client = reqwest::Client::new();
    let runs = 60 / turns;
    let bare = || {
        runtime.block_on(async {
            for body in bodies.iter().cycle().take(runs * turns) {
                let request = client.post(format!("{url}/chat/completions"));
                let request = request.header("content-type", "application/json").body(body.clone());
                let answer = request.send().await.expect("the server answers");
                assert!(!answer.bytes().await.expect("it has a body").is_empty());
            }
        });
    };
    let ours = || {
        runtime.block_on(async {
            for _ in 0..runs {
                agent.run("hello").await.expect("the server answers");
            }
        });
    };
    let [bare, ours] = interleaved(ROUNDS, [&mut { bare }, &mut { ours }]);
    let spread = Spread::of(ratios(&ours, &bare));
    let name = format!("{turns} turn(s) over HTTP to bare requests");
    Row::new(name, spread, Goal::AtMost(1.15))
}

#[derive(Clone)]
struct Call;

impl RetryRequest<ProviderError> for Call {
    fn is_idempotent(&self) -> bool {
        true
    }
}

impl FallbackRequest<ProviderError> for Call {
    fn next(
        &self,
        _: &ProviderError,
    ) -> std::pin::Pin<Box<dyn Future<Output = Option<Self>> + Send>> {
        Box::pin(ready(None))
    }
}

/// Answers at once.
#[derive(Clone)]
struct Bare(ModelResponse);

impl Service<Call> for Bare {
    type Response = ModelResponse;
    type Error = ProviderError;
    type Future = Ready<Result<ModelResponse, ProviderError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ProviderError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Call) -> Self::Future {
        ready(Ok(self.0.clone()))
    }
}

fn bare() -> Bare {
    Bare(ModelResponse {
        text: "x".into(),
        thinking: None,
        tool_calls: Arc::default(),
        stop_reason: layer0::message::StopReason::End,
        usage: Default::default(),
    })
}

/// Puts the layers around a service that answers at once.
fn stacked() -> impl Service<Call, Response = ModelResponse, Error = ProviderError> + Clone {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let retry = RetryPolicy::new(RetryConfig::default(), Arc::clone(&clock));
    let one = ServiceBuilder::new()
        .layer(retry.budget(RetryBudget::new(Arc::clone(&clock))).layer())
        .layer(Breaker::new(BreakerConfig::default(), Arc::clone(&clock)).layer())
        .layer(AttemptTimeoutLayer::new(Duration::from_secs(60), clock))
        .service(bare());
    Fallback::new(Vec::new(), one)
}

async fn asked<S>(service: &S, times: u32)
where
    S: Service<Call, Response = ModelResponse, Error = ProviderError> + Clone,
{
    for _ in 0..times {
        service.clone().oneshot(Call).await.expect("nothing fails");
    }
}

fn layers_time(runtime: &tokio::runtime::Runtime) -> Row {
    const CALLS: u32 = 10_000;
    let (stack, bare) = (stacked(), bare());
    let [with, without] = interleaved(
        ROUNDS,
        [&mut || runtime.block_on(asked(&stack, CALLS)), &mut || {
            runtime.block_on(asked(&bare, CALLS));
        }],
    );
    let more = with.iter().zip(&without).map(|(with, without)| {
        with.saturating_sub(*without).as_secs_f64() / f64::from(CALLS) / 1e-6
    });
    Row::new("the layers around an attempt that answers", Spread::of(more), Goal::Within("1 µs"))
}

fn layers_allocations(runtime: &tokio::runtime::Runtime) -> Row {
    let (stack, bare) = (stacked(), bare());
    let count = |work: &mut dyn FnMut()| {
        work();
        allocation_counter::measure(work).count_total
    };
    let with = count(&mut || runtime.block_on(asked(&stack, 100)));
    let without = count(&mut || runtime.block_on(asked(&bare, 100)));
    let more = f64::from(u32::try_from(with - without).unwrap_or(u32::MAX)) / 100.0 / 3.0;
    Row::new("allocations of these layers", Spread::of([more]), Goal::Within("3"))
}

/// Reads the events of a long stream.
fn decoding(runtime: &tokio::runtime::Runtime) -> Row {
    let endpoint = Endpoint::open(&EndpointSettings {
        base_url: "http://127.0.0.1:9",
        path: "/",
        credential: None,
        headers: &[],
        timeouts: Timeouts::default(),
        rows: &[],
    });
    let endpoint = endpoint.expect("it is configured");
    let event = format!(
        "data: {}\n\n",
        json!({ "choices": [{ "delta": { "content": "a few words of an answer ".repeat(4) } }] })
    );
    let body = event.repeat(40_000).into_bytes();
    let limit = body.len() as f64 / 200e6;
    let read = |_| {
        let body = body.clone();
        let began = now();
        let events = runtime.block_on(async {
            let mut events = endpoint.recorded("text/event-stream", body).events();
            let mut count = 0;
            while events.next().await.expect("it is well-formed").is_some() {
                count += 1;
            }
            count
        });
        assert_eq!(events, 40_000);
        began.elapsed().as_secs_f64() / limit
    };
    Row::new("decoding server-sent events", Spread::of((0..9).map(read)), Goal::Within("200 MB/s"))
}
