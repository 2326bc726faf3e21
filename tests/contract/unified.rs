//! What others switch on in shared libraries changes nothing here. `cargo xtask ci` runs the suites a
//! second time with the feature `unified-json`, under which these tests could fail.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use backstop::layer0::error::OperatorError;
use backstop::layer0::event::{Event, EventKind, SignalReceived};
use backstop::layer0::message::{Message, ProviderState, StatePart, Transcript};
use backstop::layer0::operator::{Answer, Context, Task};
use backstop::{Agent, EventLog, MemoryLog, RetryConfig, ScriptedAnswer, ScriptedProvider};
use backstop::{Anthropic, Bedrock, Gemini, OpenAi, OpenAiResponses, RunRequest, tool};
use backstop::{
    LocalOrchestrator, Operator, Orchestrator, State, ToolContext, ToolError, read_events,
};
use backstop_event_log::{RunFilter, Runs};
use backstop_provider::{ModelRequest, OutputSchema, Provider};
use backstop_testkit::{Loopback, Reply};
use layer0::JsonText;
use serde_json::{Value, json};

fn says(text: &str) -> ScriptedAnswer {
    ScriptedAnswer::saying(text)
}

/// A schema whose keys are in no order.
fn schema() -> Value {
    json!({
        "type": "object",
        "required": ["zeta", "alpha"],
        "properties": {
            "zeta": { "type": "string", "minLength": 1 },
            "alpha": { "type": "number", "maximum": 1.5 },
        },
    })
}

const SCHEMA: &str = r#"{"properties":{"alpha":{"maximum":1.5,"type":"number"},"zeta":{"minLength":1,"type":"string"}},"required":["zeta","alpha"],"type":"object"}"#;

async fn typed_run(answers: Vec<ScriptedAnswer>) -> (Result<Vec<String>, String>, Vec<Event>) {
    let log = Arc::new(MemoryLog::default());
    let agent = Agent::builder(ScriptedProvider::new(answers))
        .retry(RetryConfig::once())
        .shared_log(Arc::clone(&log) as Arc<dyn EventLog>)
        .build()
        .unwrap();
    let result = agent.run(RunRequest::new("why?").output_schema(schema())).await;
    let run = match &result {
        Ok(outcome) => outcome.run_id.clone(),
        Err(failure) => failure.run_id.clone(),
    };
    let events = read_events(&*log, &run).await.unwrap().1;
    let text = |message: &Arc<Message>| match &**message {
        Message::System { content } | Message::User { content, .. } => content.to_string(),
        other => format!("{other:?}"),
    };
    let result = result.map(|outcome| outcome.transcript.messages().iter().map(text).collect());
    (result.map_err(|failure| format!("{failure:#}")), events)
}

/// Writes a value with sorted keys, whatever serde_json does.
fn sorted(value: &Value) -> String {
    let list = |items: Vec<String>| items.join(",");
    match value {
        Value::Array(items) => format!("[{}]", list(items.iter().map(sorted).collect())),
        Value::Object(fields) => {
            let fields: BTreeMap<_, _> = fields.iter().collect();
            let field = |(key, value): (&String, &Value)| {
                format!("{}:{}", Value::from(key.as_str()), sorted(value))
            };
            format!("{{{}}}", list(fields.into_iter().map(field).collect()))
        }
        scalar => scalar.to_string(),
    }
}

/// Spec: D1, D2, O1
#[tokio::test]
async fn typed_runs_send_and_record_sorted_schemas() {
    let fits = r#"{"zeta": "x", "alpha": 1.50}"#;
    // Both are wrong: which one is named first goes into the next request.
    let misfit = r#"{"zeta": "", "alpha": 2}"#;
    let (result, events) = typed_run(vec![says(misfit), says(fits)]).await;
    let messages = result.unwrap();
    let EventKind::RunStarted(started) = &events[0].kind else { panic!("it starts") };
    let definition = started.agent.definition.get();
    assert_eq!(started.output_schema.as_ref().map(|schema| schema.get()), Some(SCHEMA));
    assert_eq!(sorted(&serde_json::from_str(definition).unwrap()), definition);
    // What is digested are these texts.
    assert!(messages[0].ends_with(SCHEMA), "{}", messages[0]);
    assert!(messages[3].contains("alpha must be"), "{}", messages[3]);
}

/// Spec: P12, O1
#[tokio::test]
async fn a_number_beyond_floats_is_no_answer() {
    for number in ["1e999", "-1e999", "1e400"] {
        let answer = format!(r#"{{"zeta": "x", "alpha": {number}}}"#);
        let (result, _) = typed_run(vec![says(&answer), says(&answer)]).await;
        let error = result.unwrap_err();
        assert!(error.contains("it is no JSON: number out of range"), "{error}");
    }
}

/// Spec: D1
#[test]
fn what_a_provider_wants_back_is_written_sorted() {
    let data = JsonText::parse(r#"{"b": {"z": 1, "a": 2.50}, "a": []}"#).unwrap();
    let part = StatePart::new(data);
    let text = serde_json::to_string(&part).unwrap();
    assert!(text.ends_with(r#""data":{"a":[],"b":{"a":2.50,"z":1}}}"#), "{text}");
    let read: StatePart = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), text);
}

/// An object in two orders of its keys, which are equal.
fn in_two_orders() -> [Value; 2] {
    [r#"{"b": {"z": 1, "a": [2]}, "a": "x"}"#, r#"{"a": "x", "b": {"a": [2], "z": 1}}"#]
        .map(|text| serde_json::from_str(text).unwrap())
}

/// Hands on its task, and keeps no record.
struct Middle;

#[async_trait]
impl Operator for Middle {
    fn name(&self) -> &str {
        "middle"
    }
    async fn run(&self, task: Task, context: &Context) -> Result<Answer, OperatorError> {
        let orchestrator = context.orchestrator.as_ref().unwrap();
        let answer = orchestrator.dispatch("worker", task, context.below()).await;
        Ok(Answer::from_output(answer.unwrap().output))
    }
}

/// Has something worked at.
#[tool]
async fn hand_on(task: State<Value>, context: &ToolContext) -> Result<Value, ToolError> {
    let operators = context.operators.as_ref().unwrap();
    let answer = operators.dispatch("worker", Task::json((*task).clone()), Context::root()).await;
    Ok(answer.unwrap().output)
}

async fn dispatched(task: &Value) -> (Vec<String>, Vec<Event>) {
    let log = Arc::<MemoryLog>::default();
    let agent = |name: &str, answers: Vec<ScriptedAnswer>| {
        let log = Arc::clone(&log) as Arc<dyn EventLog>;
        Agent::builder(ScriptedProvider::new(answers)).name(name).shared_log(log)
    };
    let lead = agent("lead", vec![ScriptedAnswer::calling("hand_on", json!({})), says("done")]);
    let orchestrator = LocalOrchestrator::builder()
        .operator(Middle)
        .operator(agent("worker", vec![says("5"), says("5")]).build().unwrap())
        .operator(lead.tool(hand_on).state(task.clone()).build().unwrap())
        .build()
        .unwrap();
    let mut context = Context::root();
    context.run = Some("run_of_middle".into());
    orchestrator.dispatch("middle", Task::json(task.clone()), context).await.unwrap();
    let runs = log.runs(RunFilter::default()).await.unwrap();
    let derived = runs.iter().map(|run| run.run.to_string()).collect();
    let answer = orchestrator.dispatch("lead", Task::text("x"), Context::root()).await.unwrap();
    let mut events = read_events(&*log, &runs[0].run).await.unwrap().1;
    events.extend(read_events(&*log, &answer.run.unwrap()).await.unwrap().1);
    (derived, events)
}

/// Spec: D1, O2
#[tokio::test]
async fn task_order_changes_no_id_or_digest() {
    let mut all = Vec::new();
    for task in in_two_orders() {
        let (runs, events) = dispatched(&task).await;
        let said = events.into_iter().filter_map(|event| match event.kind {
            EventKind::RunStarted(started) => Some(started.input.to_string()),
            EventKind::OperatorDispatched(dispatched) => Some(dispatched.input_digest.to_string()),
            _ => None,
        });
        all.push((runs, said.collect::<Vec<_>>()));
    }
    assert_eq!(all[0].1[0], r#"{"a":"x","b":{"a":[2],"z":1}}"#);
    assert_eq!(
        (&*all[0].0, all[0].1.len()),
        (&["run_093e581561994087e182190cb73d255d".to_owned()][..], 3)
    );
    assert_eq!(all[0], all[1]);
}

/// Spec: D1
#[test]
fn signal_data_is_written_sorted() {
    let [one, other] = in_two_orders().map(|data| {
        serde_json::to_string(&EventKind::from(SignalReceived::new("any", data))).unwrap()
    });
    assert_eq!(one, other);
}

/// An answer that its provider wants something back with.
fn answer_with(provider: &dyn Provider, server: &Loopback, data: Value) -> Message {
    let origin = server.url().split('/').take(3).collect::<Vec<_>>().join("/");
    let state =
        ProviderState::new(provider.name(), provider.model(), origin, [StatePart::new(data)]);
    let (content, tool_calls) = ("hi".into(), Arc::default());
    Message::Assistant { content, tool_calls, provider_state: Some(state) }
}

type Make = fn(&str, Value) -> Arc<dyn Provider>;

/// Spec: P1, P12. What a provider wants back, the form of an answer and further fields of a body are sent
/// sorted.
#[tokio::test]
async fn value_order_changes_no_request() {
    macro_rules! make {
        ($provider:ident, $model:literal $(, $with:expr)?) => {
            |url, extra| {
                let Value::Object(extra) = extra else { panic!("an object") };
                let builder = $provider::new($model).base_url(url).extra_body(extra).api_key("k");
                $(let builder = builder.with($with);)?
                Arc::new(builder.build().unwrap())
            }
        };
    }
    let makes: [(&str, Make); 5] = [
        ("anthropic", make!(Anthropic, "claude-sonnet-4-5")),
        ("bedrock", make!(Bedrock, "anthropic.claude-sonnet-4-5", |it| it.region("eu-central-1"))),
        ("gemini", make!(Gemini, "gemini-3")),
        ("openai", make!(OpenAi, "gpt-5")),
        ("openai-responses", make!(OpenAiResponses, "gpt-5")),
    ];
    for (name, make) in makes {
        let mut sent = Vec::new();
        for value in in_two_orders() {
            let server = Loopback::replying([Reply::json(500, &json!({}))]);
            let provider = make(&server.url(), json!({ "extra": value }));
            let mut messages = Transcript::default();
            messages.push(Message::user("hello"));
            messages.push(answer_with(&*provider, &server, value));
            let mut request = ModelRequest::new(messages);
            request = request.output(OutputSchema::new(JsonText::from(schema())));
            assert!(provider.complete(&request).await.is_err());
            sent.push(String::from_utf8(server.requests()[0].bytes.clone()).unwrap());
        }
        assert_eq!(sent[0], sent[1], "{name}");
        // In a form too that is made for the protocol; where it is sent as text, its quotes are escaped.
        let form = sent[0].replace('\\', "");
        let sorted = r#"{"additionalProperties":false,"properties":{"#;
        assert!(name == "gemini" || form.contains(sorted), "{name}: {form}");
    }
}
