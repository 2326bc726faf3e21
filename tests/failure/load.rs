//! Many runs at once against an endpoint that fails often, and failures by seed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use backstop::{
    EventLog, MemoryLog, OpenAi, Provider, RetryConfig, ScriptedAnswer, ScriptedProvider,
    read_events,
};
use backstop_event_log::{RunFilter, Runs};
use backstop_react::AgentBuilder;
use backstop_testkit::{Chaos, Ending, Loopback, Reply};
use serde_json::json;

/// How many runs are in flight at once.
const RUNS: usize = 1_000;

fn retry() -> RetryConfig {
    RetryConfig::new()
        .base(std::time::Duration::from_millis(5))
        .cap(std::time::Duration::from_millis(50))
}

fn says(text: &str) -> Reply {
    let answer = ScriptedAnswer::saying(text);
    backstop_testkit::openai::reply(&answer, &json!({ "stream": true }))
}

/// Answers four of five requests, and fails the fifth in turns: slow down, overloaded, reset.
fn failing() -> Loopback {
    let turn = AtomicUsize::new(0);
    let error = |status: u16, kind: &str| {
        Reply::json(status, &json!({ "error": { "type": kind, "message": "no" } }))
    };
    Loopback::serving(move |_| match turn.fetch_add(1, Ordering::Relaxed) {
        turn if turn % 5 != 4 => says("hello"),
        turn => match turn / 5 % 3 {
            0 => error(429, "rate_limit_error").header("retry-after-ms", "20"),
            1 => error(503, "server_error"),
            _ => says("hello").ending(Ending::ResetAt(20)),
        },
    })
}

/// Spec: R5, R10. A thousand runs finish or fail with the right code, retries stay within the budget,
/// and no task is left over.
#[test]
fn thousand_runs_survive_a_failing_endpoint() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let server = failing();
        let log = Arc::new(MemoryLog::new());
        let openai = OpenAi::new("m").base_url(format!("{}/v1", server.url())).build().unwrap();
        let agent = AgentBuilder::from_shared(Arc::new(openai))
            .retry(retry())
            .shared_log(Arc::clone(&log) as Arc<dyn EventLog>)
            .build()
            .unwrap();
        let runs: Vec<_> = (0..RUNS)
            .map(|_| {
                let agent = agent.clone();
                tokio::spawn(async move { agent.run("hello").await.map(drop) })
            })
            .collect();
        let mut ended: BTreeMap<&str, usize> = BTreeMap::new();
        for run in runs {
            let code = match run.await.unwrap() {
                Ok(()) => "completed",
                Err(failure) => failure.code(),
            };
            *ended.entry(code).or_default() += 1;
        }
        let known = [
            "completed",
            "provider.rate_limited",
            "provider.transient",
            "provider.stream_interrupted",
            "provider.circuit_open",
        ];
        assert!(ended.keys().all(|code| known.contains(code)), "{ended:?}");
        assert!(ended["completed"] > RUNS * 7 / 10, "{ended:?}");
        let retries = server.count().saturating_sub(RUNS);
        assert!(retries <= RUNS / 5 + 10 + 30, "{retries} retries, with half a minute of refill");
        for summary in log.runs(RunFilter::default()).await.unwrap() {
            assert!(!summary.is_open());
            read_events(&*log, &summary.run).await.unwrap();
        }
        drop(agent);
        drop(server);
        // Each open connection has a task, and a thousand may be kept for the next request.
        let metrics = tokio::runtime::Handle::current().metrics();
        for _ in 0..10_000_000 {
            if metrics.num_alive_tasks() == 0 {
                break;
            }
            tokio::task::yield_now().await;
        }
        assert_eq!(metrics.num_alive_tasks(), 0, "no task and no connection is left");
    });
}

/// Spec: E9, P10. Every code that an attempt can end with is brought about by some seed, and ends the
/// run with itself or is tried again.
#[tokio::test]
async fn chaos_ends_runs_with_injected_codes() {
    let mut injected: BTreeMap<&'static str, usize> = BTreeMap::new();
    let mut ends: Vec<String> = Vec::new();
    for seed in 0..200 {
        let inner = Arc::new(ScriptedProvider::saying(["hello"; 8]));
        let chaos = Arc::new(Chaos::new(inner, seed, 700));
        let config = RetryConfig::new().base(std::time::Duration::from_millis(0));
        let provider = Arc::clone(&chaos) as Arc<dyn Provider>;
        let agent = AgentBuilder::from_shared(provider).retry(config).build().unwrap();
        let end = match agent.run("hello").await {
            Ok(_) => "completed".to_owned(),
            Err(failure) => {
                assert!(chaos.injected().contains_key(failure.code()), "{failure:#}");
                failure.code().to_owned()
            }
        };
        ends.push(end);
        for (code, count) in chaos.injected() {
            *injected.entry(code).or_default() += count;
        }
    }
    // A breaker's refusal is no attempt's end.
    let codes = layer0::code::CATALOGUE.iter().map(|entry| entry.code);
    let of_attempts = codes.filter(|code| {
        code.starts_with("provider.") && *code != layer0::code::PROVIDER_CIRCUIT_OPEN
    });
    assert_eq!(injected.keys().copied().collect::<BTreeSet<_>>(), of_attempts.collect());
    assert!(ends.iter().any(|end| end == "completed"));
    let again = Chaos::new(Arc::new(ScriptedProvider::saying(["hello"; 8])), 7, 700);
    let other = Chaos::new(Arc::new(ScriptedProvider::saying(["hello"; 8])), 7, 700);
    for chaos in [&again, &other] {
        let request = backstop_provider::ModelRequest::new(Default::default());
        for _ in 0..8 {
            let _ = chaos.complete(&request).await;
        }
    }
    assert_eq!(again.injected(), other.injected(), "the same seed, the same failures");
}
