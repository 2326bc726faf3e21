//! Tools that are listed elsewhere and change there.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use backstop_event_log::{EventLog, Inbox, MemoryLog, read_events};
use backstop_provider::{ScriptedAnswer, ScriptedProvider};
use backstop_react::{Agent, AgentBuilder, RunRequest, replay};
use backstop_tool::{
    Arguments, JsonText, LeftOut, ListedTool, Tool, ToolContext, ToolError, ToolListing,
    ToolSource, ToolSpec, tool,
};
use layer0::event::{Event, EventKind};
use layer0::id::RunId;
use layer0::stop::Stop;
use serde_json::json;

use crate::bench::*;

struct Listed(ToolSpec);

#[async_trait]
impl Tool for Listed {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }
    async fn call(&self, _: &Arguments, _: &ToolContext) -> Result<JsonText, ToolError> {
        Ok(JsonText::string("done"))
    }
}

/// A server with a listing that the test sets.
struct Server {
    tools: Vec<Arc<dyn Tool>>,
    left_out: Vec<LeftOut>,
    listing: ToolListing,
    current: Mutex<Arc<ToolListing>>,
}

impl Server {
    /// Lists tools by name, each described by a text.
    fn listing(tools: &[(&str, &str)]) -> Arc<Self> {
        let listing = listing(tools);
        let tools = tools.iter().map(|(name, description)| {
            let schema = json!({"type": "object", "properties": {"at": {"type": "string"}}});
            let spec = ToolSpec::new(format!("files__{name}"), *description, schema);
            Arc::new(Listed(spec.origin(*name))) as Arc<dyn Tool>
        });
        Arc::new(Self {
            tools: tools.collect(),
            left_out: vec![LeftOut::new("odd", "its schema is no object")],
            current: Mutex::new(Arc::new(listing.clone())),
            listing,
        })
    }

    fn lists_now(&self, tools: &[(&str, &str)]) {
        *self.current.lock().unwrap() = Arc::new(listing(tools));
    }
}

fn listing(tools: &[(&str, &str)]) -> ToolListing {
    let mut listing = ToolListing::new("files");
    for (name, description) in tools {
        listing.tools.insert(format!("files__{name}"), ListedTool::new(*name, *description));
    }
    listing
}

impl ToolSource for Server {
    fn name(&self) -> &str {
        "files"
    }
    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.tools.clone()
    }
    fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }
    fn listing(&self) -> &ToolListing {
        &self.listing
    }
    fn current(&self) -> Arc<ToolListing> {
        Arc::clone(&self.current.lock().unwrap())
    }
}

fn agent(log: &Arc<MemoryLog>, server: &Arc<Server>, script: Vec<ScriptedAnswer>) -> AgentBuilder {
    Agent::builder(ScriptedProvider::new(script))
        .name("reader")
        .tool(wipe)
        .tool_source(Arc::clone(server) as Arc<dyn ToolSource>)
        .shared_log(Arc::clone(log) as Arc<dyn EventLog>)
}

/// Wipes.
#[tool(approval)]
async fn wipe() -> Result<String, ToolError> {
    Ok("wiped".into())
}

async fn events_of(log: &MemoryLog, run: &RunId) -> Vec<Event> {
    read_events(log, run).await.unwrap().1
}

fn changes(events: &[Event]) -> Vec<String> {
    let changed = events.iter().filter_map(|event| match &event.kind {
        EventKind::McpToolsChanged(it) => {
            Some(format!("{} +{:?} -{:?} ~{:?}", it.server, it.added, it.removed, it.changed))
        }
        _ => None,
    });
    changed.collect()
}

/// Spec: Q4, Q6. The record holds what the source listed, and what of it cannot be used.
#[tokio::test]
async fn listing_stands_in_the_record() {
    let log = Arc::new(MemoryLog::new());
    let server = Server::listing(&[("read", "Reads.")]);
    let script = vec![calls([call("c1", "files__read", json!({"at": "a"}))]), says("done")];
    let outcome = agent(&log, &server, script).build().unwrap().run("go").await.unwrap();
    let events = events_of(&log, &outcome.run_id).await;
    let EventKind::RunStarted(started) = &events[0].kind else { panic!("no run.started") };
    let mcp = started.mcp.as_ref().unwrap().value();
    assert_eq!(mcp[0]["server"], "files");
    assert_eq!(mcp[0]["tools"]["files__read"], json!({"origin": "read", "digest": "Reads."}));
    let warnings = events.iter().filter_map(|event| match &event.kind {
        EventKind::Warning(it) => Some(&*it.message),
        _ => None,
    });
    let expected = "tool `odd` of MCP server `files` is left out: its schema is no object";
    assert_eq!(warnings.collect::<Vec<_>>(), [expected]);
    assert!(changes(&events).is_empty());
    replay(&*log, &outcome.run_id).await.unwrap();
}

/// Spec: Q6. What changes while a run goes on is recorded once, and changes nothing of what the model is given.
#[tokio::test]
async fn change_in_a_run_is_recorded_once() {
    let log = Arc::new(MemoryLog::new());
    let server = Server::listing(&[("read", "Reads."), ("stat", "Looks.")]);
    let script = vec![
        calls([call("c1", "files__read", json!({"at": "a"}))]),
        calls([call("c2", "files__stat", json!({"at": "a"}))]),
        says("done"),
    ];
    server.lists_now(&[("read", "Reads more."), ("write", "Writes.")]);
    let outcome = agent(&log, &server, script).build().unwrap().run("go").await.unwrap();
    let events = events_of(&log, &outcome.run_id).await;
    let expected = "files +[\"files__write\"] -[\"files__stat\"] ~[\"files__read\"]".to_owned();
    assert_eq!(changes(&events), [expected]);
    let digests = events.iter().filter_map(|event| match &event.kind {
        EventKind::ModelRequested(it) => Some(it.tools_digest.clone()),
        _ => None,
    });
    let digests: Vec<_> = digests.into_iter().collect();
    assert_eq!(digests.len(), 3);
    assert!(digests.iter().all(|digest| *digest == digests[0]), "the tool list never changes");
    replay(&*log, &outcome.run_id).await.unwrap();
}

/// Spec: Q6, D2. A resumed run keeps to the tools it was given, whatever the source lists now; a tool that is gone
/// answers that it is not found, and the agent is the same.
#[tokio::test]
async fn resumed_run_keeps_tools_and_names_changes() {
    let log = Arc::new(MemoryLog::new());
    let server = Server::listing(&[("read", "Reads."), ("stat", "Looks.")]);
    let script = vec![calls([call("c1", "wipe", json!({}))])];
    let waiting = agent(&log, &server, script).build().unwrap();
    let outcome = waiting.run(RunRequest::new("go")).await.unwrap();
    assert_eq!(outcome.stop, Stop::WaitingApproval);
    let open = log.open_approvals().await.unwrap();
    let decision = backstop_event_log::Decision::approve("ops");
    assert!(log.decide(&open[0].id, decision, layer0::Timestamp::default()).await.unwrap());

    let moved = Server::listing(&[("read", "Reads otherwise.")]);
    let script = vec![
        calls([
            call("c2", "files__stat", json!({"at": "a"})),
            call("c3", "files__read", json!({"at": "a"})),
        ]),
        says("done"),
    ];
    let other = agent(&log, &moved, script).build().unwrap();
    let outcome = other.resume(outcome.run_id).await.unwrap();
    assert_eq!(outcome.stop, Stop::Completed);
    let events = events_of(&log, &outcome.run_id).await;
    assert_eq!(changes(&events), ["files +[] -[\"files__stat\"] ~[\"files__read\"]"]);
    let codes = events.iter().filter_map(|event| match &event.kind {
        EventKind::ToolResponded(it) => {
            Some(it.error.as_ref().map_or("ok", |error| error.reason.as_str()))
        }
        _ => None,
    });
    assert_eq!(codes.collect::<Vec<_>>(), ["ok", "tool.not_found", "ok"]);
    replay(&*log, &outcome.run_id).await.unwrap();
}
