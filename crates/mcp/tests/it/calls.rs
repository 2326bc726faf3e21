//! Calls: their metadata, progress and cancellation.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use backstop_mcp::CallProgress;
use backstop_tool::{Arguments, Given, People, ToolContext, ToolError, ToolSource};
use futures_util::future::join_all;
use layer0::JsonText;
use layer0::failure::{Effect, Failure, Retry};
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::server::Script;
use crate::support::{Faulty, Hasty, Way, call, checks, context, tool, until};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = checks![over Way::WHOLE: calls_carry_their_key, numbers_keep_their_text, secrets_do_not_come_back, dropped_calls_are_cancelled, stopped_calls_are_cancelled, calls_run_side_by_side];
    trials.extend(checks![
        calls_that_may_have_acted_stay_unrepeated,
        statuses_count_before_their_text_has_ended,
        deaths_are_told_with_their_cause,
        errors_of_a_stream_are_told,
        no_half_of_a_secret_is_shown,
        progress_extends_a_call,
        lost_calls_share_one_restart,
        dying_servers_are_left_alone,
        elicitation_asks_the_person,
        elicitation_is_declined,
        questions_of_a_call_given_up_are_declined,
        changes_are_heard_of_after_an_outage,
        roots_are_what_was_given
    ]);
    trials
}

/// Spec: Q9, T1
async fn calls_carry_their_key(way: Way) {
    let (faulty, server) = Faulty::new(way, Script::faulty(""));
    let client = server.connect().await.unwrap();
    let mut context = context();
    context.trace_parent = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into());
    let arguments = Arguments::from(json!({"n": 1}));
    tool(&client, "act").call(&arguments, &context).await.unwrap();
    let request = &faulty.calls()[0];
    let trace = request["params"]["_meta"]["traceparent"].as_str();
    assert_eq!(trace, context.trace_parent.as_deref());
    let key = &request["params"]["_meta"]["backstop/idempotency-key"];
    assert_eq!(key.as_str(), Some(&*context.idempotency_key));
    assert_eq!(request["params"]["arguments"], json!({"n": 1}));
    assert_eq!(request["params"]["name"], "act");
}

/// Numbers of a model are sent as written, and numbers of a server are read as written.
///
/// Spec: P12, Q8
async fn numbers_keep_their_text(way: Way) {
    let numbers = r#"{"a":3.10,"b":1234e10,"c":18446744073709551616,"d":[0.1e-7,{"e":-0.0}]}"#;
    let result = format!(r#"{{"content": [], "structuredContent": {numbers}}}"#);
    let (faulty, server) = Faulty::new(way, Script { written: result, ..Script::faulty("") });
    let client = server.connect().await.unwrap();
    let arguments = Arguments::new(JsonText::parse(numbers).unwrap());
    let output = tool(&client, "act").call(&arguments, &context()).await.unwrap();
    assert_eq!(output.get(), numbers);
    let call = faulty.last_written();
    assert!(call.contains(&format!("\"arguments\":{numbers}")), "{call}");
    assert_eq!(call.matches("\"arguments\"").count(), 1, "{call}");
}

/// Spec: Q5, Q7. The record says how a server died, and what it wrote.
async fn deaths_are_told_with_their_cause() {
    let (_faulty, server) = Faulty::new(Way::ALL[0], Script::faulty("dies_in_call"));
    let client = server.connect().await.unwrap();
    let error = call(&client, "act").await.unwrap_err();
    assert_eq!(error.code(), "tool.interrupted");
    let cause = "MCP server `faulty` ended (exit status: 3); it wrote: the key is [redacted]";
    assert_eq!(error.output().map(|output| &**output), Some(cause));
}

/// Spec: Q5, Q7
async fn errors_of_a_stream_are_told() {
    let (_faulty, server) = Faulty::new(Way::ALL[4], Script::faulty("error_event_in_words"));
    let client = server.connect().await.unwrap();
    let error = call(&client, "act").await.unwrap_err();
    assert_eq!(error.code(), "tool.interrupted");
    let said = error.output().unwrap();
    assert!(
        said.contains("reported an error in its stream") && said.contains("out of lamps"),
        "{said}"
    );
    assert!(call(&client, "ok").await.is_ok());
}

/// Spec: Q7, E10
async fn no_half_of_a_secret_is_shown() {
    let (_faulty, server) = Faulty::new(Way::ALL[2], Script::faulty("status_500_at_length"));
    let client = server.connect().await.unwrap();
    let result = format!("{:?}", call(&client, "act").await);
    assert!(result.contains("x [redac") && !result.contains("s3cret"), "{result}");
}

/// Spec: Q7, E10
async fn secrets_do_not_come_back(way: Way) {
    let given = match way {
        Way::Stdio { .. } => "hunter2-hunter2",
        Way::Http { .. } => "s3cret-s3cret",
    };
    for fault in ["tells_secrets", "fails_with_secrets"] {
        let (_faulty, server) = Faulty::new(way, Script::faulty(fault));
        let client = server.connect().await.unwrap();
        let result = format!("{:?}", call(&client, "act").await);
        assert!(result.contains("[redacted]") && !result.contains(given), "{result}");
    }
}

fn cancelled(faulty: &Faulty) -> Vec<Value> {
    let said = faulty.said();
    said.into_iter().filter(|said| said["method"] == "notifications/cancelled").collect()
}

async fn is_cancelled(faulty: &Faulty) {
    until(|| !cancelled(faulty).is_empty()).await;
    assert_eq!(cancelled(faulty)[0]["params"]["requestId"], faulty.calls()[0]["id"]);
}

/// Spec: Q9
async fn dropped_calls_are_cancelled(way: Way) {
    let (faulty, server) = Faulty::new(way, Script::faulty("hangs"));
    let client = server.connect().await.unwrap();
    tokio::select! {
        result = call(&client, "act") => panic!("{result:?}"),
        () = until(|| faulty.calls().len() == 1) => {}
    }
    is_cancelled(&faulty).await;
    assert!(call(&client, "ok").await.is_ok());
}

/// Spec: Q9
async fn stopped_calls_are_cancelled(way: Way) {
    let (faulty, server) = Faulty::new(way, Script::faulty("hangs"));
    let client = server.connect().await.unwrap();
    let (context, arguments) = (context(), Arguments::from(json!({})));
    let tool = tool(&client, "act");
    let stop = async {
        until(|| faulty.calls().len() == 1).await;
        context.cancellation.cancel();
    };
    let (result, ()) = tokio::join!(tool.call(&arguments, &context), stop);
    assert!(matches!(result, Err(ToolError::Cancelled)), "{result:?}");
    is_cancelled(&faulty).await;
}

/// Spec: Q5
async fn calls_run_side_by_side(way: Way) {
    let (faulty, server) = Faulty::new(way, Script::faulty("is_error"));
    let client = server.connect().await.unwrap();
    let results = join_all((0..40).map(|_| call(&client, "ok"))).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!((faulty.calls().len(), faulty.starts()), (40, usize::from(faulty.starts() == 1)));
}

/// Spec: Q3, Q9
async fn progress_extends_a_call() {
    let asks = Some(json!({
        "jsonrpc": "2.0",
        "method": "notifications/progress",
        "params": {"progressToken": 0, "progress": 1, "total": 4, "message": "a quarter"},
    }));
    let (_faulty, server) = Faulty::new(Way::ALL[0], Script { asks, ..Script::faulty("hangs") });
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    let server = server
        .timeout(Duration::from_secs(1))
        .max_timeout(Duration::from_millis(1_500))
        .on_progress(Arc::new(move |progress: CallProgress| heard.lock().unwrap().push(progress)));
    let client = server.connect().await.unwrap();
    let error = call(&client, "act").await.unwrap_err();
    assert_eq!(error.code(), "tool.timeout");
    let told = told.lock().unwrap();
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].tool.as_str(), told[0].server.as_str()), ("faulty__act", "faulty"));
    assert_eq!((told[0].progress, told[0].total), (1.0, Some(4.0)));
    assert_eq!(told[0].message.as_deref(), Some("a quarter"));
}

/// Spec: Q5
async fn lost_calls_share_one_restart() {
    let (faulty, server) = Faulty::new(Way::ALL[0], Script::faulty("dies_in_call_idempotent"));
    let client = server.connect().await.unwrap();
    let results = join_all((0..8).map(|_| call(&client, "repeat"))).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(faulty.starts(), 2);
}

/// Spec: Q5
async fn dying_servers_are_left_alone() {
    let (faulty, server) = Faulty::new(Way::ALL[0], Script::faulty("dies_in_every_call"));
    let client = server.clock(Arc::new(Hasty(8))).connect().await.unwrap();
    let mut refused = None;
    for _ in 0..10 {
        let error = call(&client, "repeat").await.unwrap_err();
        assert_eq!(error.code(), "tool.unavailable");
        if let Retry::After(_) = error.retry() {
            refused = Some(error);
            break;
        }
    }
    let refused = refused.expect("the breaker opens");
    assert!(refused.to_string().contains("reported"), "{refused}");
    let starts = faulty.starts();
    assert_eq!(starts, 5);
    let again = call(&client, "ok").await.unwrap_err();
    assert_eq!(again.effect(), Effect::None, "{again:?}");
    assert!(backstop_tool::failed_text("x", &again).contains("is left alone for"));
    assert_eq!(faulty.starts(), starts);
    // After a while one call is allowed, and a successful call counts the server as up.
    let Retry::After(wait) = again.retry() else { panic!("{again:?}") };
    backstop_clock::Clock::sleep(&Hasty(8), wait).await;
    assert!(call(&client, "ok").await.is_ok());
    assert_eq!(call(&client, "repeat").await.unwrap_err().retry(), Retry::Backoff);
}

/// Returns the client's answer to a request of the server during a call.
async fn answer(asked: Value) -> Value {
    answer_of(Way::ALL[0], asked, context()).await
}

async fn answer_of(way: Way, asked: Value, context: ToolContext) -> Value {
    let script = Script { asks: Some(asked), ..Script::faulty("") };
    let (faulty, server) = Faulty::new(way, script);
    let client = server.roots(["/srv/data"]).connect().await.unwrap();
    let arguments = Arguments::from(json!({"n": 1}));
    tool(&client, "act").call(&arguments, &context).await.unwrap();
    faulty.said().into_iter().find(|said| said["id"] == "q").unwrap()
}

/// Spec: Q9
async fn elicitation_is_declined() {
    let elicitation = json!({
        "jsonrpc": "2.0", "id": "q", "method": "elicitation/create",
        "params": {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}},
    });
    assert_eq!(answer(elicitation).await["result"]["action"], "decline");
    let sampling = json!({
        "jsonrpc": "2.0", "id": "q", "method": "sampling/createMessage",
        "params": {"messages": [], "maxTokens": 1},
    });
    assert_eq!(answer(sampling).await["error"]["code"], -32601);
}

/// A person who gives a fixed answer, and records the questions.
struct Person(Given, Mutex<Vec<(String, Value)>>);

#[async_trait]
impl People for Person {
    async fn ask(&self, message: &str, schema: JsonText) -> Result<Given, ToolError> {
        self.1.lock().unwrap().push((message.to_owned(), schema.value()));
        Ok(self.0.clone())
    }
}

/// Spec: Q9, A3. What a server asks for in a call is asked of the person whom the call can ask.
async fn elicitation_asks_the_person() {
    let name =
        json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]});
    let elicitation = json!({
        "jsonrpc": "2.0", "id": "q", "method": "elicitation/create",
        "params": {"message": "Who?", "requestedSchema": name},
    });
    for (given, action, content) in [
        (Given::Data(json!({"name": "Ada"}).into()), "accept", json!({"name": "Ada"})),
        (Given::Declined, "decline", Value::Null),
        (Given::NobodyThere, "decline", Value::Null),
    ] {
        let person = Arc::new(Person(given, Mutex::default()));
        let mut context = context();
        context.people = Some(Arc::clone(&person) as Arc<dyn People>);
        let answer = answer_of(Way::ALL[0], elicitation.clone(), context).await;
        assert_eq!(answer["result"]["action"], action, "{answer}");
        assert_eq!(answer["result"]["content"], content, "{answer}");
        let asked = person.1.lock().unwrap();
        assert_eq!((asked.len(), asked[0].0.as_str()), (1, "faulty asks: Who?"));
        assert_eq!(asked[0].1["properties"]["name"]["type"], "string");
    }
}

/// Spec: Q9. What a program asks names no call: the person of another run is not asked for it.
async fn questions_of_a_call_given_up_are_declined() {
    let asks = json!({
        "jsonrpc": "2.0", "id": "q", "method": "elicitation/create",
        "params": {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}},
    });
    let script = Script { asks: Some(asks), asks_after: 1, ..Script::faulty("hangs") };
    let (faulty, server) = Faulty::new(Way::ALL[0], script);
    let client = server.connect().await.unwrap();
    tokio::select! {
        result = call(&client, "act") => panic!("{result:?}"),
        () = until(|| faulty.calls().len() == 1) => {}
    }
    let person = Arc::new(Person(Given::Data(json!({}).into()), Mutex::default()));
    let mut context = context();
    context.people = Some(Arc::clone(&person) as Arc<dyn People>);
    tool(&client, "ok").call(&Arguments::from(json!({})), &context).await.unwrap();
    assert!(person.1.lock().unwrap().is_empty());
    let answer = faulty.said().into_iter().find(|said| said["id"] == "q").unwrap();
    assert_eq!(answer["result"]["action"], "decline");
}

/// Spec: Q6. Calls are answered all the time.
async fn changes_are_heard_of_after_an_outage() {
    for first in ["", "503"] {
        let streams = [first, "503", "503", "503", "503", "changed"].map(str::to_owned).to_vec();
        let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
        let later = Some(json!({"tools": [tool("act"), tool("new")]}));
        let pages = vec![json!({"tools": [tool("act")]})];
        let script = Script { streams, pages, later, ..Script::faulty("") };
        let (faulty, server) = Faulty::new(Way::ALL[2], script);
        let client = server.clock(Arc::new(Hasty(50))).connect().await.unwrap();
        call(&client, "act").await.unwrap();
        until(|| client.current().tools.contains_key("faulty__new")).await;
        assert!(faulty.http().seen.lock().unwrap().streams > 5);
    }
}

/// Spec: Q9
async fn roots_are_what_was_given() {
    let asked = json!({"jsonrpc": "2.0", "id": "q", "method": "roots/list"});
    assert_eq!(answer(asked).await["result"]["roots"], json!([{"uri": "file:///srv/data"}]));
}

/// Spec: Q2
async fn statuses_count_before_their_text_has_ended() {
    for (status, effect) in [(401, Effect::None), (503, Effect::Unknown)] {
        let script = Script::faulty(&format!("endless_{status}_in_every_call"));
        let (_faulty, server) = Faulty::new(Way::ALL[2], script);
        let client = server.clock(Arc::new(Hasty(10))).connect().await.unwrap();
        let error = call(&client, "act").await.unwrap_err();
        assert_eq!((error.code(), error.effect()), ("tool.unavailable", effect));
        let said = error.kind().to_string();
        assert!(said.ends_with(&format!("answered HTTP {status}: not you")), "{said}");
    }
}

/// An error that is the same for every failure does not show whether the call acted.
///
/// Spec: Q2
async fn calls_that_may_have_acted_stay_unrepeated() {
    for fault in ["fails_alike", "fails_alike_by_server"] {
        let (faulty, server) = Faulty::new(Way::ALL[2], Script::faulty(fault));
        let client = server.connect().await.unwrap();
        let error = call(&client, "act").await.unwrap_err();
        assert_eq!((error.code(), error.effect()), ("tool.execution_failed", Effect::Unknown));
        assert_eq!(faulty.calls().len(), 1, "{fault}");
        assert_eq!(call(&client, "act").await.unwrap().as_string().as_deref(), Some("act is done"));
    }
}
