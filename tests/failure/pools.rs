//! Several endpoints of one model over HTTP, and what they say in their headers.

use std::sync::Arc;
use std::time::Duration;

use backstop::{Agent, AgentBuilder, OpenAi, Provider, RetryConfig, Upstream};
use backstop_clock::{Clock, SystemClock, VirtualClock};
use backstop_testkit::{Loopback, Reply};

use crate::support::wires::OPENAI;

fn says(text: &str) -> Reply {
    let answer = backstop::ScriptedAnswer::saying(text);
    OPENAI.wire.says(&answer, true)
}

fn upstream(server: &Loopback, key: &str, clock: &Arc<dyn Clock>) -> Upstream {
    let openai = OpenAi::new("m").base_url(format!("{}/v1", server.url())).api_key(key);
    let openai: Arc<dyn Provider> = Arc::new(openai.build().unwrap());
    Upstream::on_clock(openai, Arc::clone(clock))
}

fn built(agent: AgentBuilder, clock: &Arc<dyn Clock>) -> Agent {
    let retry = RetryConfig::new().base(Duration::ZERO);
    agent.clock(Arc::clone(clock)).retry(retry).build().unwrap()
}

/// Spec: R3, P5. One key is limited, one is revoked: the third answers, and is asked alone from then on.
#[tokio::test]
async fn the_key_that_works_is_found() {
    let clock = VirtualClock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    let _hold = clock.hold();
    let clock: Arc<dyn Clock> = Arc::new(clock);
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
        assert_eq!(agent.run("hello").await.unwrap().text(), "hello");
    }
    assert_eq!(server.count(), 5);
}

/// An endpoint that says that nothing is left is not asked before it has more.
#[tokio::test]
async fn headers_are_minded_before_a_refusal() {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let server = Loopback::serving(|_| {
        says("hello")
            .header("x-ratelimit-limit-requests", "600")
            .header("x-ratelimit-remaining-requests", "0")
            .header("x-ratelimit-reset-requests", "1m0s")
    });
    let agent = built(AgentBuilder::on(upstream(&server, "a-key", &clock)), &clock);
    agent.run("hello").await.unwrap();
    let began = clock.monotonic();
    agent.run("hello").await.unwrap();
    let waited = clock.monotonic().saturating_sub(began);
    assert!(waited >= Duration::from_millis(90), "600 come in a minute: {waited:?}");
}
