//! What the way to a model costs: a turn over HTTP beside a bare request, the layers around an
//! attempt, and decoding a stream.
//!
//! `cargo bench -p backstop --bench wire`.

#![allow(clippy::print_stdout, reason = "a program speaks to its terminal")]

#[path = "wire/layers.rs"]
mod layers;

use std::process::ExitCode;

use backstop::provider::ScriptedToolCall;
use backstop::{Agent, OpenAi, ScriptedAnswer, ToolError, tool};
use backstop_provider_http::{Events, Framing};
use backstop_testkit::measure::{Goal, Row, Spread, interleaved, now, ratios};
use backstop_testkit::{Loopback, Reply};
use serde_json::json;

use crate::layers::{asked, bare, stacked};

const ROUNDS: usize = 21;

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime of one thread can be made");
    println!("{}", Row::HEAD);
    let rows = [turns(&runtime, 1), turns(&runtime, TURNS), layers_time(&runtime), decoding()];
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

/// How many requests each side makes a round.
const REQUESTS: usize = 240;

/// A run of so many turns, and bare requests with the same bodies whose answers are read. Both go over
/// connections that stay open, to a server that has its answers ready.
fn turns(runtime: &tokio::runtime::Runtime, turns: usize) -> Row {
    let answers: Vec<Reply> = (1..=turns).map(|turn| answer(turn, turn == turns)).collect();
    let server = Loopback::serving(move |request| {
        let messages = request.body["messages"].as_array().map_or(0, Vec::len);
        answers[messages / 2].clone()
    });
    let url = format!("{}/v1", server.url());
    let openai = OpenAi::new("m").base_url(&url).build().expect("it is configured");
    let agent = Agent::builder(openai).tool(add).build().expect("the agent is complete");
    runtime.block_on(agent.run("hello")).expect("the server answers");
    let bodies: Vec<String> =
        server.requests().iter().map(|request| request.body.to_string()).collect();
    assert_eq!(bodies.len(), turns);
    let client = reqwest::Client::builder().no_proxy().build().expect("it is configured");
    let url = format!("{url}/chat/completions");
    let bare = || {
        runtime.block_on(async {
            for body in bodies.iter().cycle().take(REQUESTS) {
                let request = client.post(&url);
                let request = request.header("content-type", "application/json").body(body.clone());
                let answer = request.send().await.expect("the server answers");
                assert!(!answer.bytes().await.expect("it has a body").is_empty());
            }
        });
    };
    let ours = || {
        runtime.block_on(async {
            for _ in 0..REQUESTS / turns {
                agent.run("hello").await.expect("the server answers");
            }
        });
    };
    let [bare, ours] = interleaved(ROUNDS, [&mut { bare }, &mut { ours }]);
    let spread = Spread::of(ratios(&ours, &bare));
    let name = format!("{turns} turn(s) over HTTP to bare requests");
    Row::new(name, spread, Goal::AtMost(1.15))
}

/// Makes what the server says in a turn: a call of the tool, or in the last one a text.
fn answer(turn: usize, is_last: bool) -> Reply {
    let mut says = ScriptedAnswer::default();
    if is_last {
        says.text = Some("forty-two".into());
    } else {
        let arguments = json!({ "x": turn, "y": 2 });
        let call = ScriptedToolCall::new(format!("call-{turn}"), "add", arguments);
        says.tool_calls.push(call);
    }
    backstop_testkit::openai::reply(&says, &json!({ "stream": true }))
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

/// Reads the events of a long stream.
fn decoding() -> Row {
    let event = format!(
        "data: {}\n\n",
        json!({ "choices": [{ "delta": { "content": "a few words of an answer ".repeat(4) } }] })
    );
    let body = event.repeat(40_000).into_bytes();
    let limit = body.len() as f64 / 200e6;
    let read = |_| {
        let began = now();
        let mut events = Events::default();
        events.push(&body).expect("it is small enough");
        let events = std::iter::from_fn(|| events.next().expect("it is well-formed")).count();
        assert_eq!(events, 40_000);
        began.elapsed().as_secs_f64() / limit
    };
    Row::new("decoding server-sent events", Spread::of((0..9).map(read)), Goal::Within("200 MB/s"))
}
