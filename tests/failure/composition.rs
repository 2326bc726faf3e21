//! Failures of a model's endpoint through everything that is put together in production: a dispatched
//! operator, the loop, the retry stack, an adapter, and a server on loopback that fails as planned.
//!
//! What comes of it stands in `docs/endpoint-failures.md`; `BACKSTOP_WRITE_DOCS=1 cargo test -p
//! backstop-tests composition` writes the page anew.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use backstop::layer0::event::EventKind;
use backstop::layer0::failure::{Chain, Failure};
use backstop::layer0::operator::{Context, Task};
use backstop::retry::Jitter;
use backstop::{
    Agent, AgentBuilder, Budget, Code, EventLog, LocalOrchestrator, MemoryLog, Orchestrator,
    Provider, RetryConfig, ScriptedAnswer, read_events,
};

use backstop_event_log::{RunFilter, Runs};
use backstop_provider::{ModelRequest, ModelResponse, ProviderError};
use backstop_provider_http::Timeouts;
use backstop_testkit::{Ending, Loopback, Reply};
use serde_json::json;

use crate::support::pages;
use crate::support::wires::{ANTHROPIC, Endpoint, OPENAI};

/// What a busy machine needs for a reply that does not hang.
const LONG: Duration = Duration::from_secs(30);

/// The adapters that make the same of each fault.
const ENDPOINTS: [Endpoint; 2] = [OPENAI, ANTHROPIC];

const PATIENT: Timeouts = Timeouts::all(LONG);

/// The limit that ends an attempt at a server that hangs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    FirstByte,
    Idle,
    Attempt,
}

impl Limit {
    /// Returns limits of which this one is short, and all others long.
    fn timeouts(self) -> Timeouts {
        let short = Duration::from_secs(2);
        match self {
            Self::FirstByte => PATIENT.first_byte(short),
            Self::Idle => PATIENT.idle(short),
            // The answer that comes at last has to keep it too.
            Self::Attempt => PATIENT.attempt(short * 2),
        }
    }

    /// Returns what a call says that this limit ended.
    const fn says(self) -> &'static str {
        match self {
            Self::FirstByte => "timed out waiting for the first byte after 2s",
            Self::Idle => "timed out waiting for the next chunk after 2s",
            Self::Attempt => "timed out as a whole after 4s",
        }
    }
}

impl Endpoint {
    fn provider(&self, url: &str) -> Arc<dyn Provider> {
        (self.wire.provider)(url, PATIENT)
    }

    fn says(&self, text: &str) -> Reply {
        let answer = ScriptedAnswer::saying(text);
        self.wire.says(&answer, true)
    }

    fn half(&self) -> usize {
        self.says("a long answer of many words").body.len() / 2
    }

    fn broken(&self, ending: fn(usize) -> Ending) -> Reply {
        self.says("a long answer of many words").ending(ending(self.half()))
    }

    fn error(&self, status: u16, kind: &str, message: &str) -> Reply {
        let error = json!({ "type": kind, "code": kind, "message": message });
        Reply::json(status, &json!({ "type": "error", "error": error }))
    }
}

/// What a server does to a run, and the same for both adapters.
struct Fault {
    name: &'static str,
    /// What ends an attempt at a server that hangs.
    limit: Option<Limit>,
    reply: fn(&Endpoint) -> Reply,
}

impl Fault {
    const fn new(name: &'static str, reply: fn(&Endpoint) -> Reply) -> Self {
        Self { name, limit: None, reply }
    }

    const fn hanging(name: &'static str, limit: Limit, reply: fn(&Endpoint) -> Reply) -> Self {
        Self { name, limit: Some(limit), reply }
    }
}

static FAULTS: [Fault; 13] = [
    Fault::new("429 with a hint of 50 ms", |to| {
        to.error(429, "rate_limit_error", "slow down").header("retry-after-ms", "50")
    }),
    Fault::new("a quota that is used up", |to| match to.name {
        "openai" => to.error(429, "insufficient_quota", "no credit is left"),
        _ => to.error(400, "invalid_request_error", "Your credit balance is too low"),
    }),
    Fault::new("429 with a hint of two minutes", |to| {
        to.error(429, "rate_limit_error", "slow down").header("retry-after", "120")
    }),
    Fault::new("503", |to| to.error(503, "server_error", "overloaded")),
    Fault::new("an error inside the stream", |to| {
        let error = match to.name {
            "openai" => r#"data: {"error":{"type":"server_error","message":"overloaded"}}"#,
            _ => {
                "event: error\ndata: \
                 {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}"
            }
        };
        Reply::events(format!("{error}\n\n"))
    }),
    Fault::new("connection reset inside the answer", |to| to.broken(Ending::ResetAt)),
    Fault::hanging("half an answer, then nothing", Limit::Idle, |to| to.broken(Ending::HangAt)),
    Fault::hanging("an answer that drips, and never ends in time", Limit::Attempt, |to| {
        let answer = to.says("a long answer of many words");
        answer.split(1).piece_delay(Duration::from_millis(50))
    }),
    Fault::hanging("no answer at all", Limit::FirstByte, |to| {
        to.says("x").ending(Ending::HangBeforeHead)
    }),
    Fault::new("a stream that ends early", |to| to.broken(Ending::CutAt)),
    Fault::new("an HTML page with status 502", |_| Reply::html(502)),
    Fault::new("an HTML page with status 200", |_| Reply::html(200)),
    Fault::new("400", |to| to.error(400, "invalid_request_error", "messages: field required")),
];

/// What came of a run.
struct Seen {
    outcome: String,
    requests: usize,
    attempts: Vec<String>,
    /// The waits between attempts, in milliseconds.
    waits: Vec<u64>,
    events: Vec<&'static str>,
    /// What a run that failed says.
    said: String,
    took: Duration,
}

impl Seen {
    fn waits(&self) -> String {
        let waits: Vec<String> = self.waits.iter().map(ToString::to_string).collect();
        if waits.is_empty() { "none".to_owned() } else { waits.join(", ") }
    }

    /// Holds time and record against what the attempts say.
    fn check(&self, Fault { name, limit, .. }: &Fault) {
        let waited = Duration::from_millis(self.waits.iter().sum());
        assert!(self.took >= waited, "{name}: {:?}", self.took);
        if let (Some(limit), false) = (limit, self.outcome == "completed") {
            assert!(self.said.contains(limit.says()), "{name}: {}", self.said);
        }
        assert_eq!(self.requests, self.attempts.len(), "{name}: each attempt is one request");
        let (answered, ended) = match self.outcome.as_str() {
            "completed" => ("model.responded", "run.finished"),
            _ => ("model.failed", "run.failed"),
        };
        let mut expected = vec!["run.started", "model.requested"];
        expected.extend(self.attempts.iter().map(|_| "model.attempted"));
        expected.extend([answered, ended]);
        // The endpoint reports no tokens, of which a warning tells.
        let events = self.events.iter().map(|event| &**event);
        let events: Vec<&str> = events.filter(|event| *event != "warning").collect();
        assert_eq!(events, expected, "{name}");
    }
}

fn agent(provider: Arc<dyn Provider>, log: &Arc<MemoryLog>) -> AgentBuilder {
    let retry = RetryConfig::new().base(Duration::from_millis(0));
    AgentBuilder::from_shared(provider)
        .name("asks")
        .retry(retry)
        .attempt_timeout(LONG)
        .shared_log(Arc::clone(log) as Arc<dyn EventLog>)
}

/// Dispatches a run to an agent; the orchestrator would dispatch again what another try can help.
async fn dispatched(agent: Agent, log: &MemoryLog, server: &Loopback) -> Seen {
    let retry = RetryConfig::new().base(Duration::from_millis(0));
    // The provider's own layers are looked at.
    let orchestrator = LocalOrchestrator::builder().operator(agent).retry(retry);
    let orchestrator = orchestrator.reopen(RetryConfig::once()).build().unwrap();
    let began = now();
    let answer = orchestrator.dispatch("asks", Task::text("hello"), Context::root()).await;
    let took = began.elapsed();
    let outcome = match &answer {
        Ok(answer) => answer.stop.outcome().as_str().to_owned(),
        Err(error) => error.code().to_owned(),
    };
    let said = answer.err().map(|error| Chain(&error).to_string()).unwrap_or_default();
    let runs = log.runs(RunFilter::default()).await.unwrap();
    assert_eq!(runs.len(), 1, "a dispatch never multiplies what the retry stack tried");
    let (_, events) = read_events(log, &runs[0].run).await.unwrap();
    let attempted: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::ModelAttempted(attempted) => Some(attempted),
            _ => None,
        })
        .collect();
    let ended = |code: &Option<Code>| code.as_ref().map_or("answered", Code::as_str).to_owned();
    Seen {
        outcome,
        requests: server.count(),
        attempts: attempted.iter().map(|attempt| ended(&attempt.code)).collect(),
        waits: attempted.iter().filter_map(|attempt| attempt.delay_ms).collect(),
        events: events.iter().map(|event| event.kind.event_type()).collect(),
        said,
        took,
    }
}

#[expect(clippy::disallowed_methods, reason = "real sockets take real time")]
fn now() -> Instant {
    Instant::now()
}

/// Asks a server that hangs within a short limit, and within long ones when it hangs no more: what a
/// busy machine needs for a good answer is no failure.
struct HangsAtFirst {
    hanging: Arc<dyn Provider>,
    sound: Arc<dyn Provider>,
    left: AtomicUsize,
}

#[async_trait]
impl Provider for HangsAtFirst {
    fn name(&self) -> &str {
        self.sound.name()
    }

    fn model(&self) -> &str {
        self.sound.model()
    }

    async fn complete(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        self.sound.complete(request).await
    }

    async fn stream(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        let left = self.left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
        let provider = if left.is_ok() { &self.hanging } else { &self.sound };
        provider.stream(request).await
    }
}

/// A server, and an agent that asks it. They are made before any of them runs: making a client takes a
/// while, which another one's limits would count.
struct Stage {
    agent: Agent,
    log: Arc<MemoryLog>,
    server: Loopback,
}

impl Stage {
    fn new(to: &Endpoint, fault: &Fault, times: usize) -> Self {
        let log = Arc::new(MemoryLog::new());
        let mut replies: Vec<Reply> = (0..times).map(|_| (fault.reply)(to)).collect();
        replies.extend((0..4).map(|_| to.says("hello")));
        let server = Loopback::replying(replies);
        let sound = to.provider(&server.url());
        let (provider, limits) = match fault.limit.map(Limit::timeouts) {
            None => (sound, PATIENT),
            Some(limits) => {
                let hanging = (to.wire.provider)(&server.url(), limits);
                let left = AtomicUsize::new(times);
                (Arc::new(HangsAtFirst { hanging, sound, left }) as Arc<dyn Provider>, limits)
            }
        };
        let retry = RetryConfig::new().base(Duration::from_millis(40));
        let agent = agent(provider, &log).attempt_timeout(limits.attempt).retry(retry);
        Self { agent: agent.jitter(Jitter::from_seed(7)).build().unwrap(), log, server }
    }

    async fn seen(self) -> Seen {
        dispatched(self.agent, &self.log, &self.server).await
    }
}

const HEAD: &str = "# Failures of a model's endpoint, end to end

<!-- Written by `BACKSTOP_WRITE_DOCS=1 cargo test -p backstop-tests composition`. -->

Each row is a test (`tests/failure/composition.rs`): an orchestrator dispatches an agent, which asks an adapter
through the retry stack (3 attempts), which asks a server on loopback over real HTTP. The server fails
once and then answers, or fails every time. `requests` is what the server saw; `waits` are the
milliseconds before each further attempt, as the record has them, here with a base of 40 ms and the same
dice for every row. Attempts at a server that hangs end with the limit of their phase (2 s here for the
first byte and between two pieces, 4 s as a whole), and the failure names it.

The record of a run is `run.started`, `model.requested`, a `model.attempted` for each request, and
`model.responded` and `run.finished`, or `model.failed` and `run.failed`.

| the server's failure | once: outcome | requests | attempts | waits | always: outcome | requests | waits |
|---|---|---|---|---|---|---|---|
";

/// Spec: R3, R9, R10, P4, P5, P8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fault_ends_as_the_page_says() {
    let mut page = HEAD.to_owned();
    let stages: Vec<_> = FAULTS
        .iter()
        .map(|fault| (fault, ENDPOINTS.map(|to| [1, 4].map(|times| Stage::new(&to, fault, times)))))
        .collect();
    // Side by side: most of the time is waiting for limits.
    let running: Vec<_> = stages
        .into_iter()
        .map(|(fault, both)| (fault, both.map(|of_one| of_one.map(|it| tokio::spawn(it.seen())))))
        .collect();
    for (fault, both) in running {
        let name = fault.name;
        let mut rows = Vec::new();
        for [once, always] in both {
            let (once, always) = (once.await.unwrap(), always.await.unwrap());
            once.check(fault);
            always.check(fault);
            if name.contains("50 ms") {
                assert!(once.waits[0] >= 50, "a hint is a floor: {:?}", once.waits);
            }
            rows.push(format!(
                "| {name} | {} | {} | {} | {} | {} | {} | {} |\n",
                once.outcome,
                once.requests,
                once.attempts.join(", "),
                once.waits(),
                always.outcome,
                always.requests,
                always.waits(),
            ));
        }
        assert_eq!(rows[0], rows[1], "both adapters make the same of it");
        let _ = page.write_str(&rows[0]);
    }
    pages::check("endpoint-failures.md", &page);
}

/// Asks a first server that always fails like this, with a second one of the other protocol behind.
async fn with_fallback(fault: fn(&Endpoint) -> Reply) -> (Seen, usize, Vec<String>) {
    let log = Arc::new(MemoryLog::new());
    let (openai, anthropic) = (OPENAI, ANTHROPIC);
    let first = Loopback::replying((0..9).map(|_| fault(&openai)));
    let second = Loopback::replying([anthropic.says("hello from the other")]);
    let agent = agent(openai.provider(&first.url()), &log)
        .shared_fallback(anthropic.provider(&second.url()))
        .build()
        .unwrap();
    let seen = dispatched(agent, &log, &first).await;
    let run = log.runs(RunFilter::default()).await.unwrap().remove(0).run;
    let (_, events) = read_events(&*log, &run).await.unwrap();
    let asked = events.iter().filter_map(|event| match &event.kind {
        EventKind::ModelAttempted(attempted) => Some(attempted.provider.to_string()),
        _ => None,
    });
    assert!(backstop_react::replay(&*log, &run).await.unwrap().is_some());
    (seen, second.count(), asked.collect())
}

/// Spec: R7. The log says who was asked, and who answered.
#[tokio::test]
async fn another_provider_answers_where_one_cannot() {
    let quota: fn(&Endpoint) -> Reply = |to| to.error(429, "insufficient_quota", "no credit");
    let long: fn(&Endpoint) -> Reply =
        |to| to.error(400, "context_length_exceeded", "maximum context length");
    let down: fn(&Endpoint) -> Reply = |to| to.error(503, "server_error", "overloaded");
    for (fault, requests) in [(quota, 1), (long, 1), (down, 3)] {
        let (seen, others, asked) = with_fallback(fault).await;
        assert_eq!((seen.outcome.as_str(), seen.requests, others), ("completed", requests, 1));
        let mut expected = vec!["openai/m"; requests];
        expected.push("anthropic/m");
        assert_eq!(asked, expected);
        assert_eq!(seen.attempts.last().unwrap(), "answered");
    }
    let blocked: fn(&Endpoint) -> Reply = |to| to.error(400, "content_filter", "blocked");
    let invalid: fn(&Endpoint) -> Reply = |to| to.error(400, "invalid_request_error", "no");
    for (fault, code) in
        [(blocked, "provider.content_blocked"), (invalid, "provider.invalid_request")]
    {
        let (seen, others, _) = with_fallback(fault).await;
        assert_eq!((seen.outcome.as_str(), seen.requests, others), (code, 1, 0));
    }
}

/// Spec: B2, R7. The run's budget counts what all providers were asked, and it is what ended the run
/// only where it stopped an attempt.
#[tokio::test]
async fn a_budget_reaches_over_all_providers() {
    let quota: fn(&Endpoint) -> Reply = |to| to.error(429, "insufficient_quota", "no credit");
    let down: fn(&Endpoint) -> Reply = |to| to.error(503, "server_error", "overloaded");
    let well: fn(&Endpoint) -> Reply = |to| to.says("hello");
    for (faults, max_model_calls, outcome, asked) in [
        (vec![quota, well], 1, "budget_exhausted", vec![1, 0]),
        (vec![down, well], 3, "budget_exhausted", vec![3, 0]),
        (vec![down, well], 2, "budget_exhausted", vec![2, 0]),
        (vec![quota, down], 4, "provider.transient", vec![1, 3]),
        (vec![quota, down], 3, "budget_exhausted", vec![1, 2]),
        (vec![down, down, well], 7, "completed", vec![3, 3, 1]),
        (vec![down, down, well], 6, "budget_exhausted", vec![3, 3, 0]),
    ] {
        let log = Arc::new(MemoryLog::new());
        let to = OPENAI;
        let servers: Vec<Loopback> = faults
            .iter()
            .map(|fault| Loopback::replying((0..4).map(|_| fault(&to)).collect::<Vec<_>>()))
            .collect();
        let mut agent = agent(to.provider(&servers[0].url()), &log)
            .budget(Budget::new().model_calls(max_model_calls));
        for server in &servers[1..] {
            agent = agent.shared_fallback(to.provider(&server.url()));
        }
        let seen = dispatched(agent.build().unwrap(), &log, &servers[0]).await;
        let counts: Vec<usize> = servers.iter().map(Loopback::count).collect();
        assert_eq!((seen.outcome.as_str(), counts), (outcome, asked), "of {max_model_calls}");
    }
}

/// Spec: R7. An endpoint that is down is left alone, also by runs that come later.
#[tokio::test]
async fn open_breaker_falls_back_without_waiting() {
    let log = Arc::new(MemoryLog::new());
    let (openai, anthropic) = (OPENAI, ANTHROPIC);
    let first = Loopback::replying((0..9).map(|_| openai.error(503, "server_error", "overloaded")));
    let second = Loopback::replying((0..4).map(|_| anthropic.says("hello")));
    let agent = agent(openai.provider(&first.url()), &log)
        .shared_fallback(anthropic.provider(&second.url()))
        .build()
        .unwrap();
    let began = now();
    for _ in 0..4 {
        agent.run("hello").await.unwrap();
    }
    assert!(began.elapsed() < Duration::from_secs(20), "no run waits for the breaker");
    assert_eq!((first.count(), second.count()), (5, 4), "five failures in a row open it");
}

/// Spec: R5. An endpoint that is down is asked little more often than it would be if it were up.
#[tokio::test]
async fn the_retries_of_all_runs_share_one_budget() {
    let log = Arc::new(MemoryLog::new());
    let openai = OPENAI;
    // Every other request fails, so that no breaker opens.
    let turn = AtomicUsize::new(0);
    let (up, down) = (openai.says("hello"), openai.error(503, "server_error", "overloaded"));
    let server = Loopback::serving(move |_| {
        let turn = turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if turn.is_multiple_of(2) { down.clone() } else { up.clone() }
    });
    let clock = backstop_clock::VirtualClock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    let _hold = clock.hold();
    let agent = agent(openai.provider(&server.url()), &log);
    let agent = agent.clock(Arc::new(clock.clone())).build().unwrap();
    let mut failed = 0;
    for _ in 0..40 {
        failed += usize::from(agent.run("hello").await.is_err());
    }
    assert!(failed > 0, "the budget was used up");
    let retries = server.count() - 40;
    assert!((10..=18).contains(&retries), "ten and a fifth of forty: {retries}");
}
