//! Several endpoints of one model over HTTP, and what they say in their headers.

use std::sync::Arc;
use std::time::Duration;

use backstop::{Agent, AgentBuilder, OpenAi, Provider, RetryConfig, Upstream};
use backstop_clock::{Clock, VirtualClock};
use backstop_testkit::{Loopback, Reply};

use crate::support::wires::OPENAI;

fn clock() -> VirtualClock {
    VirtualClock::starting_at("2026-01-01T00:00:00Z".parse().unwrap())
}

fn says(text: &str) -> Reply {
    let answer = backstop::ScriptedAnswer { text: Some(text.into()), ..Default::default() };
    OPENAI.wire.says(&answer, true)
}

fn upstream(server: &Loopback, key: &str, clock: &VirtualClock) -> Upstream {
    let openai = OpenAi::new("m").base_url(format!("{}/v1", server.url())).api_key(key);
    let openai: Arc<dyn Provider> = Arc::new(openai.build().unwrap());
    Upstream::on_clock(openai, Arc::new(clock.clone()))
}

fn built(agent: AgentBuilder, clock: &VirtualClock) -> Agent {
    let retry = RetryConfig::new().base(Duration::ZERO);
    agent.clock(Arc::new(clock.clone())).retry(retry).build().unwrap()
}

async fn run(agent: &Agent, clock: &VirtualClock) -> String {
    let agent = agent.clone();
    let (done, answer) = tokio::sync::oneshot::channel();
    tokio::spawn(clock.track(Box::pin(async move {
        let _ = done.send(agent.run("hello").await.unwrap().text().to_owned());
    })));
    answer.await.unwrap()
}

/// Spec: R3, P5. One key is limited, one is revoked: the third answers, and is asked alone from then on.
#[tokio::test]
async fn the_key_that_works_is_found() {
    let clock = clock();
    let server = Loopback::serving(|request| {
        let error = |status, kind: &str| {
            let error = serde_json::json!({ "type": kind, "code": kind, "message": kind });
            Reply::json(status, &serde_json::json!({ "error": error }))
        };
        match request.header("authorization") {
            Some("Bearer limited-key") => {
                error(429, "rate_limit_exceeded").header("retry-after", "600")
            }
            Some("Bearer revoked-key") => error(401, "invalid_api_key"),
            _ => says("hello"),
        }
    });
    let pool = AgentBuilder::on(upstream(&server, "limited-key", &clock))
        .endpoint(upstream(&server, "revoked-key", &clock))
        .endpoint(upstream(&server, "working-key", &clock));
    let agent = built(pool, &clock);
    for _ in 0..3 {
        assert_eq!(run(&agent, &clock).await, "hello");
    }
    assert_eq!(server.count(), 5);
}

/// An endpoint that says that nothing is left is not asked before it has more.
#[tokio::test]
async fn headers_are_minded_before_a_refusal() {
    let clock = clock();
    let server = Loopback::serving(|_| {
        says("hello")
            .header("x-ratelimit-limit-requests", "60")
            .header("x-ratelimit-remaining-requests", "0")
            .header("x-ratelimit-reset-requests", "1m0s")
    });
    let agent = built(AgentBuilder::on(upstream(&server, "a-key", &clock)), &clock);
    let began = clock.monotonic();
    run(&agent, &clock).await;
    assert_eq!(clock.monotonic(), began);
    run(&agent, &clock).await;
    let waited = clock.monotonic().saturating_sub(began);
    assert_eq!(waited, Duration::from_secs(1), "60 come in a minute");
}
