//! Sessions over several runs, processes and stores, with real database files.

use std::path::Path;
use std::sync::Arc;

use backstop_event_log::{Inbox, LogError, RunFilter, Runs};
use backstop_provider::{ScriptedAnswer, ScriptedProvider, ScriptedToolCall};
use backstop_react::{
    Agent, AgentBuilder, AgentError, ForkRequest, RunOutcome, RunRequest, Source, replay,
};
use backstop_store_sqlite::{Database, Durability};
use backstop_tool::{ToolError, tool};
use layer0::Timestamp;
use layer0::message::Message;
use serde_json::json;

/// Fails with a long text.
#[tool]
async fn broken() -> Result<(), ToolError> {
    Err(ToolError::ExecutionFailed(format!("boom\n{}", "deep trace\n".repeat(100))))
}

/// Answers with a long text.
#[tool(idempotent)]
async fn long() -> Result<String, ToolError> {
    Ok("a long answer ".repeat(10_000))
}

async fn open(folder: &Path, name: &str) -> Database {
    Database::open(folder.join(name), Durability::Normal).await.unwrap()
}

fn agent(database: &Database, answers: Vec<ScriptedAnswer>) -> AgentBuilder {
    Agent::builder(ScriptedProvider::new(answers))
        .tool(broken)
        .tool(long)
        .log(database.log())
        .error_store(database.errors())
        .result_store(database.results())
}

fn says(text: &str) -> ScriptedAnswer {
    ScriptedAnswer::saying(text)
}

fn calls(name: &str, arguments: serde_json::Value) -> ScriptedAnswer {
    let id = format!("call_{name}");
    let call = ScriptedToolCall::new(id, name, arguments);
    ScriptedAnswer::default().tool_calls([call])
}

async fn ask(agent: AgentBuilder, session: &str, text: &str) -> RunOutcome {
    agent.build().unwrap().run(RunRequest::new(text).session(session)).await.unwrap()
}

fn said(outcome: &RunOutcome) -> Vec<String> {
    let texts = outcome.transcript.messages().iter().filter_map(|message| match &**message {
        Message::User { content, .. } | Message::Assistant { content, .. } => {
            Some(content.to_string())
        }
        _ => None,
    });
    texts.filter(|text| !text.is_empty()).collect()
}

/// Spec: D5, D8. Runs that begin at the same time in one session: each goes on with all that was
/// said before it, or does not begin.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_that_begin_at_once_take_turns() {
    let folder = tempfile::tempdir().unwrap();
    let mut began = 0;
    let mut tasks = Vec::new();
    for process in 0..4 {
        // Several databases over one file are what several processes have.
        let database = open(folder.path(), "one.db").await;
        tasks.push(tokio::spawn(async move {
            let mut began = 0;
            for number in 0..12 {
                let text = format!("{process}.{number}");
                let agent = agent(&database, vec![says(&format!("re {text}"))]).build().unwrap();
                match agent.run(RunRequest::new(text).session("s")).await {
                    Ok(_) => began += 1,
                    Err(failure) => assert!(
                        matches!(
                            failure.error,
                            AgentError::NotStarted(
                                LogError::SessionBusy { .. } | LogError::Locked(_)
                            )
                        ),
                        "{failure:#}"
                    ),
                }
            }
            began
        }));
    }
    for task in tasks {
        began += task.await.unwrap();
    }
    assert!(began > 0);
    let database = open(folder.path(), "one.db").await;
    let last = ask(agent(&database, vec![says("done")]), "s", "all?").await;
    assert_eq!(said(&last).len(), 2 * (began + 1), "everything was said once");
    for run in database.log().runs(RunFilter::default()).await.unwrap() {
        assert!(replay(&database.log(), &run.run).await.unwrap().is_some());
    }
}

/// Spec: D7. The session of a copy goes on with what was said before the copy, too.
#[tokio::test]
async fn the_session_of_a_copy_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path(), "one.db").await;
    ask(agent(&database, vec![says("one")]), "s", "1?").await;
    let failing = vec![calls("broken", json!({})), says("two")];
    let second = ask(agent(&database, failing), "s", "2?").await;
    let copying = agent(&database, vec![says("other")]).build().unwrap();
    let copy = copying.fork(ForkRequest::new(second.run_id, 8)).await.unwrap();
    assert_eq!(said(&copy), ["1?", "one", "2?", "other"]);
    let id = stored_error(&database).await;
    let reading = vec![calls("get_error_detail", json!({ "error_id": id })), says("three")];
    let third = ask(agent(&database, reading), copy.session.as_str(), "3?").await;
    assert_eq!(said(&third), ["1?", "one", "2?", "other", "3?", "three"]);
    assert!(tool_text(&third).contains("deep trace"), "{}", tool_text(&third));
    for run in database.log().runs(RunFilter::default()).await.unwrap() {
        assert!(replay(&database.log(), &run.run).await.unwrap().is_some());
    }
}

async fn stored_error(database: &Database) -> String {
    use backstop_error_store::ErrorStore;
    let errors = database.errors().list(Default::default()).await.unwrap();
    errors[0].id().to_string()
}

fn tool_text(outcome: &RunOutcome) -> String {
    let texts = outcome.transcript.messages().iter().rev().filter_map(|message| match &**message {
        Message::Tool { content, .. } => Some(content.to_string()),
        _ => None,
    });
    texts.take(1).collect()
}

/// Spec: D7. A copy in another store brings along what it rests on.
#[tokio::test]
async fn a_copy_in_another_store_stands_alone() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path(), "one.db").await;
    let first = vec![calls("long", json!({})), says("one")];
    let first = ask(agent(&database, first), "s", "1?").await;
    let second = vec![calls("broken", json!({})), says("two")];
    let second = ask(agent(&database, second), "s", "2?").await;
    let id = stored_error(&database).await;
    let text = tool_text(&first);
    let result = text.split("[Result ID: ").nth(1).unwrap().split(']').next().unwrap().to_owned();

    let other = open(folder.path(), "other.db").await;
    let source = Source::new(Arc::new(database.log()))
        .errors(Arc::new(database.errors()))
        .results(Arc::new(database.results()));
    let reading = vec![calls("get_error_detail", json!({ "error_id": id })), says("other")];
    let copying = agent(&other, reading).build().unwrap();
    let request = ForkRequest::new(second.run_id.clone(), 8).from(source.clone());
    let copy = copying.fork(request).await.unwrap();
    database.close().await;
    std::fs::remove_file(folder.path().join("one.db")).unwrap();
    assert!(tool_text(&copy).contains("deep trace"), "{}", tool_text(&copy));
    let reading = vec![
        calls("get_tool_result", json!({ "result_id": result, "offset": 1_000 })),
        says("three"),
    ];
    let third = ask(agent(&other, reading), copy.session.as_str(), "3?").await;
    assert_eq!(said(&third), ["1?", "one", "2?", "other", "3?", "three"]);
    assert!(tool_text(&third).contains("a long answer"), "{}", tool_text(&third));
    let runs = other.log().runs(RunFilter::default()).await.unwrap();
    assert_eq!(runs.len(), 3, "the first run, the copy of the second, and the third");
    for run in runs {
        assert!(replay(&other.log(), &run.run).await.unwrap().is_some());
    }
}

/// Deletes.
#[tool(approval)]
async fn wipe(what: String) -> Result<String, ToolError> {
    Ok(format!("wiped {what}"))
}

/// Spec: A1. Runs that start in the same millisecond ask for approvals of their own, and a decision
/// about one lets no other run.
#[tokio::test]
async fn a_decision_is_about_one_run() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path(), "one.db").await;
    let clock = backstop_clock::VirtualClock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    let _hold = clock.hold();
    let build = |what: &str| {
        let ask = ScriptedToolCall::new("c1", "wipe", json!({ "what": what }));
        let ask = ScriptedAnswer::default().tool_calls([ask]);
        let agent = agent(&database, vec![ask, says("done")]).tool(wipe);
        agent.clock(Arc::new(clock.clone())).build().unwrap()
    };
    let ask =
        |run: &str| RunRequest::new("wipe").session("s").run(run.into()).parent("run_p".into());
    let files = build("temporary files").run(ask("run_a")).await.unwrap();
    let all = build("the production database").run(ask("run_b")).await.unwrap();
    assert_ne!(files.approvals[0].id, all.approvals[0].id);
    let log = database.log();
    assert_eq!(log.open_approvals().await.unwrap().len(), 2);
    let yes = backstop_event_log::Decision::approve("ops");
    assert!(log.decide(&files.approvals[0].id, yes, Timestamp::default()).await.unwrap());
    let going_on = agent(&database, vec![says("done")]).tool(wipe).clock(Arc::new(clock.clone()));
    let going_on = going_on.build().unwrap();
    let still = going_on.resume("run_b").await.unwrap();
    assert_eq!(still.stop.outcome().as_str(), "waiting_approval");
    let wiped = going_on.resume("run_a").await.unwrap();
    assert_eq!(tool_text(&wiped), "wiped temporary files");
}

/// Never ends.
#[tool]
async fn hang() -> Result<(), ToolError> {
    std::future::pending().await
}

/// Spec: D4. A run is seen as it is, from a process that does not run it.
#[tokio::test]
async fn the_status_of_another_processs_run_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let (here, there) = (open(folder.path(), "one.db").await, open(folder.path(), "one.db").await);
    assert!(backstop_react::status(&there.log(), &"run_1".into()).await.unwrap().is_none());
    let answers = vec![calls("broken", json!({})), calls("hang", json!({}))];
    let running = agent(&here, answers)
        .tool(hang)
        .price(backstop_react::Price::new(1.0, 1.0))
        .budget(backstop_react::Budget::new().tool_calls(7))
        .build()
        .unwrap();
    let running =
        tokio::spawn(async move { running.run(RunRequest::new("go").run("run_1".into())).await });
    let status = loop {
        let status = backstop_react::status(&there.log(), &"run_1".into()).await.unwrap();
        match status {
            Some(status) if status.summary.usage.tool_calls == 2 => break status,
            _ => tokio::task::yield_now().await,
        }
    };
    assert_eq!(status.summary.state, backstop_event_log::RunState::Running);
    assert_eq!((status.summary.usage.model_calls, status.summary.errors), (2, 1));
    assert_eq!(status.summary.usage.cost_usd, Some(0.0));
    assert_eq!(status.budget.max_tool_calls, Some(7));
    let failure = status.summary.last_failure.unwrap();
    assert_eq!((failure.seq, failure.code.as_str()), (7, "tool.execution_failed"));
    let recent: Vec<u64> = status.recent.iter().map(|event| event.seq).collect();
    assert_eq!(recent, (2..=11).collect::<Vec<u64>>());
    assert_eq!(status.recent[9].kind.event_type(), "tool.requested");
    running.abort();
}
