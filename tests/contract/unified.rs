//! What others switch on in shared libraries changes nothing here. `cargo xtask ci` runs the suites a
//! second time with the feature `unified-json`, under which these tests could fail.

use std::collections::BTreeMap;
use std::sync::Arc;

use backstop::layer0::event::{Event, EventKind};
use backstop::layer0::message::{Message, StatePart};
use backstop::{Agent, EventLog, MemoryLog, RetryConfig, ScriptedAnswer, ScriptedProvider};
use backstop::{RunRequest, read_events};
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
    let data = serde_json::from_str(r#"{"b": {"z": 1, "a": 2.50}, "a": []}"#).unwrap();
    let part = StatePart::new(data);
    let text = serde_json::to_string(&part).unwrap();
    assert!(text.ends_with(r#""data":{"a":[],"b":{"a":2.5,"z":1}}}"#), "{text}");
    let read: StatePart = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), text);
}
