//! Calls in several rounds: the server requests input in place of a result.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use backstop_mcp::McpServer;
use backstop_tool::{Arguments, Given, People, ToolError};
use layer0::JsonText;
use layer0::failure::{Effect, Failure};
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::server::Script;
use crate::server::input::{STATE, required, who};
use crate::support::{Faulty, Way, checks, context, tool};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = checks![over Way::WHOLE: the_call_is_sent_again_with_the_input];
    trials.extend(checks![
        input_is_declined_as_the_person_says,
        roots_are_given_without_a_person,
        a_state_alone_is_sent_back,
        what_a_person_gives_keeps_its_text,
        a_person_is_not_asked_beside_sampling,
        a_person_takes_longer_than_a_server,
        a_person_outlasts_the_longest_call
    ]);
    trials
}

/// A person who gives a fixed answer after a time, and records the questions.
pub(crate) struct Person {
    given: Given,
    after: Duration,
    pub(crate) asked: Mutex<Vec<(String, Value)>>,
}

impl Person {
    pub(crate) fn new(given: Given) -> Arc<Self> {
        Arc::new(Self { given, after: Duration::ZERO, asked: Mutex::default() })
    }

    fn slow(given: Given, after: Duration) -> Arc<Self> {
        Arc::new(Self { given, after, asked: Mutex::default() })
    }
}

#[async_trait]
impl People for Person {
    async fn ask(&self, message: &str, schema: JsonText) -> Result<Given, ToolError> {
        self.asked.lock().unwrap().push((message.to_owned(), schema.value()));
        backstop_clock::Clock::sleep(&backstop_clock::SystemClock, self.after).await;
        Ok(self.given.clone())
    }
}

pub(crate) fn ada() -> Given {
    Given::Data(json!({"name": "Ada"}).into())
}

/// Spec: P12
async fn what_a_person_gives_keeps_its_text() {
    let params = json!({
        "message": "How much?",
        "requestedSchema": {"type": "object", "properties": {"sum": {"type": "number"}}},
    });
    let asked = required(json!({"sum": {"method": "elicitation/create", "params": params}}));
    let (faulty, server) = asking(Way::ALL[0], vec![asked]);
    let given = Given::Data(JsonText::parse(r#"{"sum":3.10}"#).unwrap());
    called(server, &Person::new(given)).await.unwrap();
    let call = faulty.last_written();
    assert!(call.contains(r#""content":{"sum":3.10}"#), "{call}");
}

/// Describes a server that requests these inputs before it answers.
fn asking(way: Way, results: Vec<Value>) -> (Faulty, McpServer) {
    Faulty::new(way, Script { results, ..Script::faulty("") })
}

/// Calls a tool that may ask this person.
async fn called(server: McpServer, person: &Arc<Person>) -> Result<JsonText, ToolError> {
    let client = server.connect().await.unwrap();
    let mut context = context();
    context.people = Some(Arc::clone(person) as Arc<dyn People>);
    tool(&client, "act").call(&Arguments::from(json!({"n": 1})), &context).await
}

/// Spec: Q9, A3
async fn the_call_is_sent_again_with_the_input(way: Way) {
    let (faulty, server) = asking(way, vec![who(), who()]);
    let person = Person::new(ada());
    let output = called(server, &person).await.unwrap();
    assert_eq!(output.as_string().unwrap(), "act is done");
    let asked = person.asked.lock().unwrap();
    assert_eq!((asked.len(), asked[0].0.as_str()), (2, "faulty asks: Who?"));
    assert_eq!(asked[0].1["properties"]["name"]["type"], "string");
    let [first, second, third] = &faulty.calls()[..] else { panic!("{:?}", faulty.calls()) };
    assert!(first["params"].get("inputResponses").is_none(), "{first}");
    assert!(first["params"].get("requestState").is_none(), "{first}");
    for again in [second, third] {
        let responses = &again["params"]["inputResponses"];
        assert_eq!(*responses, json!({"who": {"action": "accept", "content": {"name": "Ada"}}}));
        assert_eq!(again["params"]["requestState"], STATE);
        assert_eq!(again["params"]["name"], "act");
        assert_eq!(again["params"]["arguments"], json!({"n": 1}));
        let key = "/params/_meta/backstop~1idempotency-key";
        assert_eq!(again.pointer(key), first.pointer(key));
        assert_ne!(again["id"], first["id"]);
    }
}

/// Spec: Q9
async fn input_is_declined_as_the_person_says() {
    let params = json!({"mode": "url", "message": "Log in.", "url": "https://example.com/login"});
    let at_a_url = required(json!({"who": {"method": "elicitation/create", "params": params}}));
    for (asked, given) in [(who(), Given::Declined), (who(), Given::NobodyThere), (at_a_url, ada())]
    {
        let (faulty, server) = asking(Way::ALL[0], vec![asked]);
        called(server, &Person::new(given)).await.unwrap();
        let responses = &faulty.calls()[1]["params"]["inputResponses"];
        assert_eq!(*responses, json!({"who": {"action": "decline"}}));
    }
}

/// Spec: Q9
async fn roots_are_given_without_a_person() {
    let asked = required(json!({"where": {"method": "roots/list"}}));
    let (faulty, server) = asking(Way::ALL[0], vec![asked]);
    let person = Person::new(ada());
    called(server.roots(["/srv/data"]), &person).await.unwrap();
    let params = faulty.calls()[1]["params"].clone();
    let responses = json!({"where": {"roots": [{"uri": "file:///srv/data"}]}});
    assert_eq!(params["inputResponses"], responses);
    assert!(params.get("requestState").is_none(), "{params}");
    assert!(person.asked.lock().unwrap().is_empty());
}

/// A busy server sends a state without requests.
async fn a_state_alone_is_sent_back() {
    let asked = json!({"resultType": "input_required", "requestState": "later"});
    let (faulty, server) = asking(Way::ALL[0], vec![asked]);
    called(server, &Person::new(ada())).await.unwrap();
    let params = faulty.calls()[1]["params"].clone();
    assert_eq!(params["requestState"], "later");
    assert!(params.get("inputResponses").is_none(), "{params}");
}

/// Spec: Q9
async fn a_person_is_not_asked_beside_sampling() {
    let mut asked = who();
    asked["inputRequests"]["x"] = json!({"method": "sampling/createMessage", "params": {}});
    let (faulty, server) = asking(Way::ALL[0], vec![asked]);
    let person = Person::new(ada());
    let error = called(server, &person).await.unwrap_err();
    assert_eq!((error.code(), error.effect()), ("tool.execution_failed", Effect::None));
    assert_eq!((person.asked.lock().unwrap().len(), faulty.calls().len()), (0, 1));
}

/// Spec: Q3, A3
async fn a_person_takes_longer_than_a_server() {
    let (_faulty, server) = asking(Way::ALL[0], vec![who()]);
    let person = Person::slow(ada(), Duration::from_millis(900));
    let server = server.timeout(Duration::from_millis(400));
    assert!(called(server, &person).await.is_ok());
}

/// Spec: Q3
async fn a_person_outlasts_the_longest_call() {
    let (faulty, server) = asking(Way::ALL[0], vec![who()]);
    let person = Person::slow(ada(), Duration::from_millis(1_200));
    let server = server.timeout(Duration::from_millis(400)).max_timeout(Duration::from_millis(800));
    assert!(called(server, &person).await.is_ok());
    assert_eq!(faulty.calls().len(), 2);
}
