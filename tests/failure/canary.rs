//! A secret goes in everywhere and comes out nowhere.

use async_trait::async_trait;
use backstop::{
    Agent, AgentBuilder, ApprovalRequest, Approver, Database, Decision, EventLog, Gate,
    GateVerdict, HookContext, HookPoint, Live, Memory, Moment, OpenAi, ToolError, read_events,
};
use backstop_error_store::{ErrorFilter, ErrorStore};
use backstop_react::{MemoryEntry, MemoryQuery};
use backstop_redact::Redactor;
use backstop_testkit::{Loopback, Reply};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use layer0::error::BoxError;
use layer0::id::SessionId;
use serde_json::{Value, json};
use tracing::instrument::WithSubscriber;

use crate::support::lines::Lines;

/// The ways in which a tool, a server or a model may write the key, at the least.
fn forms() -> Vec<String> {
    let percent = |upper: bool| -> String {
        let digits = |byte: u8| if upper { format!("%{byte:02X}") } else { format!("%{byte:02x}") };
        KEY.bytes().map(digits).collect()
    };
    let base64 = |before: &str| STANDARD.encode(format!("{before}{KEY} and more"));
    let lines = |text: &str, width: usize, fold: &str| {
        let letters: Vec<char> = text.chars().collect();
        let lines: Vec<String> = letters.chunks(width).map(|line| line.iter().collect()).collect();
        lines.join(fold)
    };
    vec![
        KEY.replace('/', "\\/"),
        KEY.chars().map(|char| format!("\\u{:04x}", u32::from(char))).collect(),
        percent(true),
        percent(false),
        KEY.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D"),
        KEY.replace('+', "%252b").replace('/', "%252f").replace('=', "%253d"),
        base64(""),
        base64("a"),
        base64("ab"),
        base64("").replace('+', "-").replace('/', "_"),
        lines(&base64("user:"), 20, "\n"),
        KEY.bytes().map(|byte| format!("{byte:02x}")).collect(),
        lines(KEY, 9, "\n"),
        lines(KEY, 9, "\r\n    "),
        KEY.replace('/', "&#x2F;"),
    ]
}

/// The key the process holds; it looks like nothing a pattern would know.
const KEY: &str = "canary+Zm9vYmFy/key=0123456789";
/// One the process does not hold, in a form that patterns know.
const FOREIGN: &str = "sk-canary0123456789abcdefghij";

/// Fails with secrets in its words.
#[backstop::tool]
async fn leak(how: String) -> Result<Value, ToolError> {
    let said = format!("refused Authorization: Bearer {FOREIGN} and {KEY}");
    match how.as_str() {
        "panic" => std::panic::resume_unwind(Box::new(said)),
        "code" => Err(ToolError::ExecutionFailed(said).with_code(FOREIGN)),
        "large" => Ok(json!(format!("{KEY} {}", "x".repeat(40_000)))),
        "forms" => Err(ToolError::ExecutionFailed(forms().join(" or "))),
        "written" => Ok(json!(forms())),
        "nested" => Ok(json!({"a": [{KEY: KEY}]})),
        "invalid" => Err(ToolError::InvalidInput(said)),
        _ => Err(ToolError::ExecutionFailed(format!("{said}\n{}", "trace\n".repeat(200)))),
    }
}

/// Sends money.
#[backstop::tool(approval)]
async fn send(to: String) -> Result<String, ToolError> {
    Ok(to)
}

struct Chatty(bool);

#[async_trait]
impl Gate for Chatty {
    fn name(&self) -> &str {
        "chatty"
    }
    fn points(&self) -> &[HookPoint] {
        &[HookPoint::RunStart, HookPoint::BeforeTool, HookPoint::RunEnd]
    }
    async fn judge(&self, moment: Moment<'_>, _: &HookContext) -> Result<GateVerdict, BoxError> {
        match moment {
            Moment::BeforeTool { call, .. } if call.id.as_str() == "skipped" => {
                Ok(GateVerdict::Abort(format!("no {KEY} {FOREIGN}")))
            }
            Moment::RunEnd { .. } if self.0 => {
                Ok(GateVerdict::Abort(format!("no {KEY} {FOREIGN}")))
            }
            _ => Err(format!("with {KEY} and api_key={FOREIGN}").into()),
        }
    }
}

#[async_trait]
impl Approver for Chatty {
    async fn decide(&self, _: &ApprovalRequest) -> Option<Decision> {
        Some(Decision::deny(KEY, format!("because {KEY} {FOREIGN}")))
    }
}

#[async_trait]
impl Memory for Chatty {
    async fn read(&self, _: MemoryQuery) -> Result<Vec<String>, BoxError> {
        Ok(vec![format!("the key is {KEY}")])
    }
    async fn write(&self, _: MemoryEntry) -> Result<(), BoxError> {
        Err(format!("password={FOREIGN} {KEY}").into())
    }
    async fn forget(&self, _: Option<&SessionId>) -> Result<u64, BoxError> {
        Ok(0)
    }
}

fn calls() -> Value {
    let ways = ["long", "panic", "code", "large", "nested", "invalid", "forms", "written"];
    let mut calls: Vec<Value> =
        ways.iter().map(|how| function(how, "leak", &json!({"how": how}))).collect();
    calls.push(function("skipped", "leak", &json!({"how": "long"})));
    calls.push(function("asked", "send", &json!({"to": KEY})));
    calls.push(function("unknown", KEY, &json!({"key": KEY})));
    json!({"role": "assistant", "content": format!("I know {KEY} as {}", forms().join(" or ")), "tool_calls": calls})
}

fn function(id: &str, name: &str, arguments: &Value) -> Value {
    json!({"id": id, "type": "function",
        "function": {"name": name, "arguments": arguments.to_string()}})
}

fn completion(message: &Value, finish: &str) -> Reply {
    Reply::json(
        200,
        &json!({
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }),
    )
}

fn agent(server: &Loopback, aborts: bool) -> AgentBuilder {
    let provider = OpenAi::new("m").base_url(server.url()).api_key(KEY).build().unwrap();
    Agent::builder(provider)
        .stream(false)
        .redactor(Redactor::new().with_secret(KEY))
        .retry(
            backstop::RetryConfig::new()
                .attempts(2)
                .base(std::time::Duration::from_millis(0))
                .cap(std::time::Duration::from_millis(0)),
        )
        .tool(leak)
        .tool(send)
        .gate(Chatty(aborts))
        .approver(Chatty(false))
        .memory(Chatty(false))
}

/// Runs an agent and returns everything that can be read of it afterwards.
async fn everything_said(agent: AgentBuilder) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("canary.db");
    let database = Database::open(&path, backstop::Durability::Normal).await.unwrap();
    let agent = agent
        .log(database.log())
        .error_store(database.errors())
        .result_store(database.results())
        .build()
        .unwrap();
    let mut subscriber = agent.subscribe();
    let lines = Lines::default();
    let log = lines.clone();
    let logger = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(move || log.clone())
        .finish();
    let result = agent.run(format!("Is {KEY} the key?")).with_subscriber(logger).await;
    let run = match &result {
        Ok(outcome) => outcome.run_id.clone(),
        Err(failure) => failure.run_id.clone(),
    };
    let mut said = format!("{result:?}");
    if let Err(failure) = &result {
        said += &format!("{failure:#} {failure}");
    }
    let (summary, events) = read_events(&database.log() as &dyn EventLog, &run).await.unwrap();
    said += &serde_json::to_string(&events).unwrap();
    let errors = database.errors().list(ErrorFilter::default()).await.unwrap();
    said += &format!("{errors:?}");
    let recorded = backstop_trace_html::RecordedRun::new(summary, events.clone(), errors.clone());
    said += &backstop_trace_html::page(&recorded, &[]);
    drop(agent);
    while let Some(live) = subscriber.next().await {
        assert!(!matches!(live, Live::Missed(_)));
        said += &format!("{live:?}");
    }
    said += &lines.text();
    database.close().await;
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        said += &String::from_utf8_lossy(&std::fs::read(entry.unwrap().path()).unwrap());
    }
    said
}

#[track_caller]
fn nothing_leaks(said: &str, marks: usize) {
    let forms = forms();
    let parts =
        forms.iter().flat_map(|form| form.split('\n').map(str::trim)).filter(|part| part.len() > 8);
    // As a part of JSON, and as it is.
    let escaped = |part: &str| part.replace('\\', "\\\\");
    let parts: Vec<String> = parts.flat_map(|part| [part.to_owned(), escaped(part)]).collect();
    for secret in parts.iter().map(String::as_str).chain([KEY, FOREIGN, "canary", "Y2FuYXJ5"]) {
        if let Some(at) = said.find(secret) {
            let from = said[..at].char_indices().rev().nth(120).map_or(0, |(index, _)| index);
            panic!("{secret} after: {}", &said[from..at]);
        }
    }
    assert!(said.matches("[redacted]").count() >= marks, "the canary was there");
}

/// Spec: E10, S9
#[tokio::test]
async fn every_source_is_redacted_in_every_sink() {
    let server = Loopback::serving(|request| {
        let messages = request.body["messages"].as_array().map_or(0, Vec::len);
        if messages > 4 {
            completion(&json!({"role": "assistant", "content": format!("It is {KEY}")}), "stop")
        } else {
            completion(&calls(), "tool_calls")
        }
    });
    nothing_leaks(&everything_said(agent(&server, false)).await, 40);
    nothing_leaks(&everything_said(agent(&server, true)).await, 40);
    let sent = server.requests();
    assert!(sent.iter().all(|request| request.header("authorization").unwrap().contains(KEY)));
    assert!(sent.iter().all(|request| !request.body.to_string().contains("canary")));
}

/// Spec: E10. Each class of failure a server can answer with, with the key in its words.
#[tokio::test]
async fn echoed_secrets_are_redacted_in_every_sink() {
    for status in [400, 401, 403, 404, 413, 422, 429, 500, 503, 200] {
        let server = Loopback::serving(move |request| {
            let header = request.header("authorization").unwrap().to_owned();
            let message = format!("Incorrect API key provided: {KEY}, {FOREIGN}, {header}");
            Reply::json(status, &json!({"error": {"message": message, "type": "x", "code": KEY}}))
        });
        let said = everything_said(agent(&server, false)).await;
        nothing_leaks(&said, 2);
        assert!(said.contains("run.failed"), "{status}");
    }
}
