//! Images of tool results (SPEC Q8).

use std::sync::Arc;

use backstop_event_log::{MemoryLog, read_events};
use backstop_provider::ScriptedProvider;
use backstop_react::{Agent, ForkRequest, RecordedTools, RunRequest, replay};
use backstop_tool::{ToolContext, ToolError, tool};
use layer0::event::{Event, EventKind, ToolResponded};
use layer0::message::{Image, Message};
use serde_json::json;

fn gif() -> Image {
    Image::from_bytes(b"GIF89a").unwrap()
}

/// Draws.
#[tool]
async fn draw(context: &ToolContext) -> Result<String, ToolError> {
    context.show_image(gif()).map_err(|why| ToolError::ExecutionFailed(why.to_string()))?;
    Ok("[a drawing]".to_owned())
}

/// Draws, and fails.
#[tool]
async fn smear(context: &ToolContext) -> Result<String, ToolError> {
    context.show_image(gif()).map_err(|why| ToolError::ExecutionFailed(why.to_string()))?;
    Err(ToolError::ExecutionFailed("smeared".into()))
}

fn draws() -> ScriptedProvider {
    ScriptedProvider::calling("draw", json!({}), "done")
}

fn answer(events: &[Event]) -> &ToolResponded {
    let answer = events.iter().find_map(|event| match &event.kind {
        EventKind::ToolResponded(answer) => Some(answer),
        _ => None,
    });
    answer.unwrap()
}

/// Returns a tool's text and its number of images in the last request of a model.
fn told(requests: &backstop_provider::ScriptedRequests) -> (String, usize) {
    let all = requests.all();
    let messages = all.last().unwrap().messages.clone();
    let told = messages.iter().find_map(|message| match &**message {
        Message::Tool { content, images, .. } => Some((content.to_string(), images.len())),
        _ => None,
    });
    told.unwrap()
}

#[tokio::test]
async fn the_model_is_shown_what_the_tool_shows() {
    let log = Arc::new(MemoryLog::new());
    let model = draws();
    let requests = model.requests();
    let agent = Agent::builder(model).tool(draw).shared_log(log.clone()).build().unwrap();
    let run = agent.run("draw").await.unwrap().run_id;
    assert_eq!(told(&requests), ("[a drawing]".to_owned(), 1));
    let (_, events) = read_events(&*log, &run).await.unwrap();
    assert_eq!(*answer(&events).images, [gif()]);
    let text = serde_json::to_string(answer(&events)).unwrap();
    assert!(text.contains(&*gif().data), "{text}");
    replay(&*log, &run).await.unwrap();
}

#[tokio::test]
async fn a_failed_call_shows_nothing() {
    let log = Arc::new(MemoryLog::new());
    let model = ScriptedProvider::calling("smear", json!({}), "done");
    let requests = model.requests();
    let agent = Agent::builder(model).tool(smear).shared_log(log.clone()).build().unwrap();
    let run = agent.run("draw").await.unwrap().run_id;
    let (_, events) = read_events(&*log, &run).await.unwrap();
    assert!(answer(&events).images.is_empty());
    assert_eq!(told(&requests).1, 0);
    let text = serde_json::to_string(answer(&events)).unwrap();
    assert!(!text.contains("images"), "{text}");
}

/// A run that follows reads the images from the record, as a fork does whose tools answer from it.
#[tokio::test]
async fn images_are_read_back_from_the_record() {
    let log = Arc::new(MemoryLog::new());
    let agent = Agent::builder(draws()).tool(draw).shared_log(log.clone()).build().unwrap();
    let run = agent.run(RunRequest::new("draw").session("s")).await.unwrap().run_id;
    let follows = ScriptedProvider::saying(["I saw it"]);
    let requests = follows.requests();
    let agent = Agent::builder(follows).tool(draw).shared_log(log.clone()).build().unwrap();
    agent.run(RunRequest::new("What was it?").session("s")).await.unwrap();
    assert_eq!(told(&requests), ("[a drawing]".to_owned(), 1));
    let (_, events) = read_events(&*log, &run).await.unwrap();
    let forked = draws();
    let requests = forked.requests();
    let agent = Agent::builder(forked).tool(draw).shared_log(log.clone());
    let agent = agent.recorded_tools(RecordedTools::from_events(&events)).build().unwrap();
    agent.fork(ForkRequest::new(run, 1)).await.unwrap();
    assert_eq!(told(&requests), ("[a drawing]".to_owned(), 1));
}
