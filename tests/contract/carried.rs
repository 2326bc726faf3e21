//! What goes to a model with the transcript besides words: images, and what it wants back of its
//! own thinking.

use std::sync::Arc;

use backstop::layer0::message::Image;
use backstop::layer0::operator::{Context, Task};
use backstop::{
    AgentBuilder, Anthropic, Bedrock, EventLog, Gemini, LocalOrchestrator, MemoryLog, Ollama,
    OpenAi, OpenAiResponses, Orchestrator, RunRequest, ScriptedAnswer, ToolError, tool,
};
use backstop_provider::{Provider, ScriptedToolCall};
use backstop_testkit::{Loopback, Reply};
use layer0::JsonText;
use serde_json::{Value, json};

type Make = fn(&str, &str) -> Arc<dyn Provider>;
type Answer = fn(&ScriptedAnswer, &Value) -> Reply;

fn anthropic(url: &str, model: &str) -> Arc<dyn Provider> {
    Arc::new(Anthropic::new(model).base_url(url).build().unwrap())
}

fn openai(url: &str, model: &str) -> Arc<dyn Provider> {
    Arc::new(OpenAi::new(model).base_url(url).build().unwrap())
}

fn responses(url: &str, model: &str) -> Arc<dyn Provider> {
    Arc::new(OpenAiResponses::new(model).base_url(url).build().unwrap())
}

fn gemini(url: &str, model: &str) -> Arc<dyn Provider> {
    Arc::new(Gemini::new(model).base_url(url).build().unwrap())
}

fn ollama(url: &str, model: &str) -> Arc<dyn Provider> {
    Arc::new(Ollama::new(model).base_url(url).build().unwrap())
}

fn bedrock(url: &str, model: &str) -> Arc<dyn Provider> {
    let bedrock = Bedrock::new(model)
        .base_url(url)
        .with(|it| it.region("eu-central-1"))
        .api_key("0123456789");
    Arc::new(bedrock.build().unwrap())
}

fn in_gemini(answer: &ScriptedAnswer, _: &Value) -> Reply {
    backstop_testkit::gemini::reply(answer, &Value::Null, true)
}

fn in_bedrock(answer: &ScriptedAnswer, _: &Value) -> Reply {
    backstop_testkit::bedrock::reply(answer, &Value::Null, true)
}

/// Add two integers.
#[tool]
async fn add(x: i64, y: i64) -> Result<i64, ToolError> {
    Ok(x + y)
}

/// Thinks and calls a tool when it is asked, and answers when it is told what the tool said.
fn thinking_server(answer: Answer) -> Loopback {
    let call = ScriptedToolCall::new("call-1", "add", json!({ "x": 1, "y": 2 }));
    let thinks =
        ScriptedAnswer::default().thinking("One and two.").text("Let me see.").tool_calls([call]);
    let says = ScriptedAnswer::saying("It is 3.");
    let asked = std::sync::atomic::AtomicUsize::new(0);
    let stream = json!({ "stream": true });
    Loopback::serving(move |_| {
        let turn = asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        answer(if turn == 0 { &thinks } else { &says }, &stream)
    })
}

/// Runs an agent in one session with its model, then with another one, and then with a model of
/// the same name elsewhere. Returns what was asked: twice in the first run, once in each of the others.
async fn session(make: Make, answer: Answer) -> Vec<Value> {
    let server = thinking_server(answer);
    let says = ScriptedAnswer::saying("It is 3.");
    let elsewhere = Loopback::serving(move |_| answer(&says, &json!({ "stream": true })));
    let log: Arc<dyn EventLog> = Arc::new(MemoryLog::new());
    for (model, input, server) in [
        ("one", "1 + 2?", &server),
        ("one", "Sure?", &server),
        ("two", "Really?", &server),
        ("one", "Certainly?", &elsewhere),
    ] {
        let provider = make(&server.url(), model);
        let agent = AgentBuilder::from_shared(provider).tool(add).shared_log(Arc::clone(&log));
        let request = RunRequest::new(input).session("s");
        assert_eq!(agent.build().unwrap().run(request).await.unwrap().text(), "It is 3.");
    }
    let requests = server.requests().into_iter().chain(elsewhere.requests());
    requests.map(|request| request.body).collect()
}

/// Spec: P1
#[tokio::test]
async fn signed_thinking_returns_to_its_model_only() {
    let providers: [(&str, Make, Answer, &str); 4] = [
        ("anthropic", anthropic, backstop_testkit::anthropic::reply, "/messages/1"),
        ("openai-responses", responses, backstop_testkit::responses::reply, "/input"),
        ("gemini", gemini, in_gemini, "/contents/1"),
        ("bedrock", bedrock, in_bedrock, "/messages/1"),
    ];
    for (name, make, answer, place) in providers {
        let asked = session(make, answer).await;
        assert_eq!(asked.len(), 5, "{name}");
        let carries = |body: &Value| {
            let text = body.to_string();
            text.contains("\"script\"") || text.contains("c2NyaXB0")
        };
        assert_eq!(
            asked.iter().map(carries).collect::<Vec<_>>(),
            [false, true, true, false, false],
            "{name}"
        );
        let sent = JsonText::from(asked[1].pointer(place).unwrap()).pretty();
        insta::assert_snapshot!(format!("carried_{name}"), sent);
    }
}

/// Spec: P1
#[tokio::test]
async fn images_reach_every_provider_and_the_record() {
    let providers: [(&str, Make, Answer); 6] = [
        ("anthropic", anthropic, backstop_testkit::anthropic::reply),
        ("openai", openai, backstop_testkit::openai::reply),
        ("openai-responses", responses, backstop_testkit::responses::reply),
        ("gemini", gemini, in_gemini),
        ("ollama", ollama, backstop_testkit::ollama::reply),
        ("bedrock", bedrock, in_bedrock),
    ];
    let image = Image::from_bytes(b"\x89PNG\r\n\x1a\nand so on").unwrap();
    for (name, make, answer) in providers {
        let says = ScriptedAnswer::saying("A cat.");
        let server = Loopback::serving(move |_| answer(&says, &json!({ "stream": true })));
        let log: Arc<dyn EventLog> = Arc::new(MemoryLog::new());
        for (input, images) in [("What is it?", vec![image.clone()]), ("Sure?", vec![])] {
            let agent =
                AgentBuilder::from_shared(make(&server.url(), "m")).shared_log(Arc::clone(&log));
            let request = RunRequest::new(input).images(images).session("s");
            let outcome = agent.build().unwrap().run(request).await.unwrap();
            assert_eq!(outcome.text(), "A cat.", "{name}");
        }
        for request in server.requests() {
            assert!(request.body.to_string().contains(&*image.data), "{name}: {}", request.body);
        }
    }
}

/// Spec: O1, P1
#[tokio::test]
async fn a_dispatched_task_shows_its_pictures() {
    let says = ScriptedAnswer::saying("A cat.");
    let server = Loopback::serving(move |_| {
        backstop_testkit::openai::reply(&says, &json!({ "stream": true }))
    });
    let agent = AgentBuilder::from_shared(openai(&server.url(), "m")).name("sees").build().unwrap();
    let orchestrator = LocalOrchestrator::builder().operator(agent).build().unwrap();
    let image = Image::from_bytes(b"GIF89a").unwrap();
    let task = Task::text("What is it?").images([image.clone()]);
    let answer = orchestrator.dispatch("sees", task, Context::root()).await.unwrap();
    assert_eq!(answer.output, "A cat.");
    assert!(server.requests()[0].body.to_string().contains(&*image.data));
}
