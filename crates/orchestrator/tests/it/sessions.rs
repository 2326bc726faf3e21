//! Agents that are dispatched at once in one session.

use std::sync::Arc;

use backstop_event_log::{
    EventLog, Log, MemoryLog, RunFilter, RunState, RunSummary, RunWriter, Runs, Seed,
};
use backstop_orchestrator::LocalOrchestrator;
use backstop_provider::{ModelRequest, ScriptedAnswer, ScriptedProvider};
use backstop_react::{Agent, RunRequest, replay};
use backstop_tool::{ToolContext, ToolError, tool};
use layer0::event::{Actor, AgentRecord, RunStarted};
use layer0::failure::Failure;
use layer0::message::Message;
use layer0::operator::{Context, Task};
use layer0::stop::Stop;
use layer0::{Orchestrator, Timestamp};
use serde_json::json;
use tokio::sync::Barrier;

use crate::agents::{calling, has_answers};

/// Waits for the others.
#[tool(timeout = "10s")]
async fn meet(context: &ToolContext) -> Result<String, ToolError> {
    let all: &Arc<Barrier> = context.state().unwrap();
    all.wait().await;
    Ok("met".into())
}

/// Returns an agent that answers with the inputs of its session, once it has met as many others.
fn meeting(log: &Arc<MemoryLog>, count: usize) -> Agent {
    let answer = |request: &ModelRequest| {
        let messages = request.messages.messages();
        let asked = messages.iter().filter_map(|message| match &**message {
            Message::User { content, .. } => Some(&**content),
            _ => None,
        });
        let asked: Vec<&str> = asked.collect();
        match asked.last().is_some_and(|last| last.starts_with("meet")) && !has_answers(request) {
            true => calling("meet"),
            false => ScriptedAnswer::saying(asked.join(", ")),
        }
    };
    Agent::builder(ScriptedProvider::from_fn(answer))
        .shared_log(Arc::clone(log) as Arc<dyn EventLog>)
        .name("meeting")
        .tool(meet)
        .state(Arc::new(Barrier::new(count)))
        .build()
        .unwrap()
}

async fn runs(log: &MemoryLog) -> Vec<RunSummary> {
    let mut runs = log.runs(RunFilter::new().session("s")).await.unwrap();
    runs.reverse();
    runs
}

/// Spec: O4
#[tokio::test]
async fn agents_at_once_in_one_session_all_run() {
    let log = Arc::new(MemoryLog::new());
    let agent = meeting(&log, 3);
    agent.run(RunRequest::new("first").session("s")).await.unwrap();
    let orchestrator = LocalOrchestrator::builder().operator(agent.clone()).build().unwrap();
    let mut context = Context::root();
    context.session = Some("s".into());
    let tasks = ["meet 1", "meet 2", "meet 3"].map(|text| ("meeting".into(), Task::text(text)));
    let answers = orchestrator.dispatch_many(tasks.to_vec(), context).await;
    let said: Vec<String> =
        answers.iter().map(|answer| answer.as_ref().unwrap().output.to_string()).collect();
    assert_eq!(said, ["\"first, meet 1\"", "\"first, meet 2\"", "\"first, meet 3\""]);

    let all = runs(&log).await;
    let first = all[0].run.clone();
    let line: Vec<_> = all[1..].iter().filter(|run| run.branch_of.is_none()).collect();
    assert_eq!((all.len(), line.len()), (4, 1));
    for run in &all[1..] {
        assert_eq!(run.follows.as_ref(), Some(&first), "each follows the last that had ended");
        assert!(run.run == line[0].run || run.branch_of.as_ref() == Some(&line[0].run));
        replay(&*log, &run.run).await.unwrap();
    }
    let next = agent.run(RunRequest::new("and then?").session("s")).await.unwrap();
    let asked =
        answers.iter().position(|it| it.as_ref().unwrap().run.as_ref() == Some(&line[0].run));
    let expected = format!("first, meet {}, and then?", asked.unwrap() + 1);
    assert_eq!(next.text(), expected, "the branches are outside of the transcript");
}

/// Spec: D5
#[tokio::test]
async fn a_dead_branch_ends_before_its_session_goes() {
    let log = Arc::new(MemoryLog::new());
    let agent = meeting(&log, 1);
    let first = agent.run(RunRequest::new("meet").session("s")).await.unwrap();
    let record = AgentRecord::new("meeting", "0", json!({}));
    let mut started = RunStarted::new("meet too", "s".into(), record);
    (started.run, started.branch_of) = (Some("run_b".into()), Some(first.run_id.clone()));
    let mut writer = RunWriter::new(Arc::clone(&log) as Arc<dyn EventLog>, "run_b".into());
    writer.stage(&Seed::new("t"), Timestamp::default(), Actor::Runtime, None, started.into());
    writer.commit().await.unwrap();
    let busy = agent.run(RunRequest::new("then?").session("s")).await.unwrap_err();
    assert_eq!(busy.error.code(), "run.open", "its process lives");
    drop(writer);

    let next = agent.run(RunRequest::new("then?").session("s")).await.unwrap();
    assert_eq!((&next.stop, next.text()), (&Stop::Completed, "meet, then?"));
    let branch = log.summary(&"run_b".into()).await.unwrap().unwrap();
    assert_eq!(branch.state, RunState::Failed);
}
