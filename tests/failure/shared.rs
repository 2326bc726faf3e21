//! Agents that ask the same endpoint are one client to it: one retry budget, one breaker, and so many
//! calls in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use backstop::provider::ScriptedToolCall;
use backstop::retry::{Breaker, BreakerConfig};
use backstop::{Agent, AgentBuilder, OpenAi, RetryConfig, ScriptedAnswer, Upstream};
use backstop_clock::{SystemClock, VirtualClock};
use backstop_testkit::{Ending, Loopback, Reply};
use serde_json::json;

fn says(text: &str) -> Reply {
    let answer = ScriptedAnswer::saying(text);
    backstop_testkit::openai::reply(&answer, &json!({ "stream": true }))
}

/// An upstream for this server whose budget is not refilled: its clock stands still.
fn upstream(server: &Loopback) -> Upstream {
    let openai = OpenAi::new("m").base_url(server.url()).build().unwrap();
    let clock = VirtualClock::starting_at(Default::default());
    Upstream::on_clock(Arc::new(openai), Arc::new(clock))
}

fn on(upstream: &Upstream, attempts: u32) -> Agent {
    let retry = RetryConfig::new().attempts(attempts).base(Duration::from_millis(0));
    AgentBuilder::on(upstream.clone()).retry(retry).build().unwrap()
}

/// Spec: R5
#[tokio::test]
async fn one_agents_retries_are_taken_from_the_others() {
    let asked = AtomicUsize::new(0);
    let server = Loopback::serving(move |_| match asked.fetch_add(1, Ordering::SeqCst) % 2 {
        0 => Reply::html(503),
        _ => says("yes"),
    });
    let upstream = upstream(&server);
    let (first, second) = (on(&upstream, 2), on(&upstream, 2));
    let mut answered = 0;
    while first.run("?").await.is_ok() {
        answered += 1;
    }
    assert!((10..=14).contains(&answered), "ten, and a fifth of the calls: {answered}");
    assert_eq!(server.count(), 2 * answered + 1);
    // A budget of its own would refuse it nothing; of this one a fifth of the calls is left.
    let mut refused = 0;
    for _ in 0..6 {
        if let Err(failure) = second.run("?").await {
            assert_eq!((failure.code(), failure.usage.model_attempts), ("provider.transient", 1));
            refused += 1;
        }
    }
    assert!((1..=5).contains(&refused), "{refused} of 6");
}

/// Spec: R7
#[tokio::test]
async fn circuit_is_shared_between_agents() {
    let server = Loopback::serving(|_| Reply::html(503));
    let upstream = upstream(&server);
    on(&upstream, 5).run("?").await.unwrap_err();
    assert_eq!(server.count(), 5);
    let refused = on(&upstream, 1).run("?").await.unwrap_err();
    assert_eq!(refused.code(), "provider.circuit_open");
    assert_eq!(server.count(), 5, "no server was asked");
}

/// Spec: R11
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "real sockets take real time")]
async fn no_more_calls_are_in_flight_than_allowed() {
    let server = Loopback::serving(|_| says("never").ending(Ending::HangBeforeHead));
    let upstream = upstream(&server).max_concurrent_calls(2);
    let runs: Vec<_> = (0..5)
        .map(|_| {
            let agent = on(&upstream, 1);
            tokio::spawn(async move { agent.run("?").await.is_ok() })
        })
        .collect();
    while server.count() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(server.count(), 2);
    // A run that is dropped leaves its place to the next one.
    runs[0].abort();
    runs[1].abort();
    while server.count() < 4 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    runs.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Spec: R11. A place is given back between the attempts of a call, and between the calls of a run.
#[tokio::test]
async fn one_place_is_enough_for_many_runs() {
    let asked = AtomicUsize::new(0);
    let server = Loopback::serving(move |request| {
        let asked = asked.fetch_add(1, Ordering::SeqCst);
        let answered = request.body["messages"].as_array().map_or(0, Vec::len);
        match (asked, answered) {
            (3, _) => Reply::html(503),
            (_, 1) => {
                let call = ScriptedToolCall::new("c", "nothing", json!({}));
                let answer = ScriptedAnswer::default().tool_calls([call]);
                backstop_testkit::openai::reply(&answer, &json!({ "stream": true }))
            }
            _ => says("done"),
        }
    });
    let agent = on(&upstream(&server).max_concurrent_calls(1), 2);
    let runs = (0..8).map(|_| {
        let agent = agent.clone();
        tokio::spawn(async move { agent.run("?").await })
    });
    for run in runs.collect::<Vec<_>>() {
        assert_eq!(run.await.unwrap().unwrap().text(), "done");
    }
    assert_eq!(server.count(), 8 * 2 + 1);
}

/// Spec: R7, R11. What waits for a circuit to close takes no place from what asks elsewhere.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "real sockets take real time")]
async fn call_waiting_for_a_circuit_holds_no_permit() {
    let server = Loopback::serving(|_| Reply::html(503));
    let other = Loopback::serving(|_| says("from the other"));
    let config = BreakerConfig::new().failures(1);
    let breaker = Breaker::new(config, Arc::new(SystemClock));
    let upstream = upstream(&server).breaker(breaker).max_concurrent_calls(1);
    let agent = on(&upstream, 3);
    let waits = tokio::spawn(async move { agent.run("?").await.is_ok() });
    while server.count() < 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let openai = OpenAi::new("m").base_url(other.url()).build().unwrap();
    let agent = AgentBuilder::on(upstream).fallback(openai).build().unwrap();
    let run = tokio::time::timeout(Duration::from_secs(10), agent.run("?"));
    assert_eq!(run.await.expect("it waits for no other").unwrap().text(), "from the other");
    assert!(!waits.is_finished());
    waits.abort();
}
