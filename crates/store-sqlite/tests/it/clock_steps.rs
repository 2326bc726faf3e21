//! A process whose time of day is set by an hour while it owns runs.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{Clock, SystemClock};
use backstop_error_store::{ErrorStore, Lookup, NewError, Origin};
use backstop_event_log::{
    Decision, EventLog, Inbox, Log, LogError, RunFilter, RunState, RunWriter, Seed,
};
use backstop_provider::{ScriptedAnswer, ScriptedProvider};
use backstop_react::{Agent, ApprovalRequest, Approver, RunRequest};
use backstop_redact::Redactor;
use backstop_retention::StoreRetention;
use backstop_store_sqlite::{Database, OpenOptions};
use backstop_testkit::is_own_process;
use backstop_tool::{ToolError, tool};
use layer0::event::{Actor, EventKind, Warning};
use layer0::message::Message;
use layer0::{Code, code};
use serde_json::json;

use crate::claims::begin;
use crate::retention::finished;
use crate::{Folder, open, started};

const HOUR_MS: i64 = 60 * 60 * 1_000;

/// Spec: D8, A1, S10. Owners are found by their locks, runs measure their waits, and a pass removes nothing early.
#[tokio::test(flavor = "multi_thread")]
async fn process_with_a_set_clock_keeps_its_runs() {
    if !is_own_process("clock_steps::process_with_a_set_clock_keeps_its_runs") {
        return;
    }
    keeps_its_claims().await;
    for by in [HOUR_MS, -HOUR_MS] {
        approval_lasts_as_long_as_it_should(by).await;
        removes_what_is_old_and_nothing_else(by).await;
    }
}

/// Waits until a condition holds.
async fn until(what: &str, mut is_met: impl AsyncFnMut() -> bool) {
    for _ in 0..3_000 {
        if is_met().await {
            return;
        }
        SystemClock.sleep(Duration::from_millis(10)).await;
    }
    panic!("{what}: not within 30 s");
}

/// A process that lives has its runs, and one that is gone has none.
async fn keeps_its_claims() {
    let folder = Folder::new();
    let (one, two) = (open(&folder.file()).await, open(&folder.file()).await);
    let (log, other): (Arc<dyn EventLog>, Arc<dyn EventLog>) =
        (Arc::new(one.log()), Arc::new(two.log()));
    let mut writer = begin(&log, "run_1").await;
    for by in [HOUR_MS, -HOUR_MS, -HOUR_MS, HOUR_MS] {
        SystemClock::set_time_of_day(by);
        let claimed = other.claim(&"run_1".into()).await;
        assert!(matches!(claimed, Err(LogError::Claimed(_))), "{by}: {claimed:?}");
        append(&mut writer, Warning::new("goes on").into()).await;
    }
    drop(writer);
    one.close().await;
    SystemClock::set_time_of_day(-HOUR_MS);
    drop(other.claim(&"run_1".into()).await.unwrap());
    SystemClock::set_time_of_day(HOUR_MS);
}

async fn append(writer: &mut RunWriter, kind: EventKind) {
    writer.stage(&Seed::new("test"), SystemClock.now(), Actor::Runtime, None, kind);
    writer.commit().await.unwrap();
}

/// Wipes, if a person agrees within half an hour.
#[tool(approval(expires_after_ms = 1_800_000))]
async fn wipe() -> Result<String, ToolError> {
    Ok("wiped".into())
}

/// Sweeps, if a person agrees within a second.
#[tool(approval(expires_after_ms = 1_000))]
async fn sweep() -> Result<String, ToolError> {
    Ok("swept".into())
}

/// A person who is asked, and does not answer.
struct Silent;

#[async_trait]
impl Approver for Silent {
    async fn decide(&self, _: &ApprovalRequest) -> Option<Decision> {
        std::future::pending().await
    }
}

/// Starts a run that calls a tool, and waits until it asks for approval.
async fn asking(database: &Database, run: &'static str, tool: &'static str) {
    let model = ScriptedProvider::from_fn(move |request| {
        match request.messages.messages().last().map(|it| &**it) {
            Some(Message::Tool { .. }) => ScriptedAnswer::saying("done"),
            _ => ScriptedAnswer::calling(tool, json!({})),
        }
    });
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let agent = Agent::builder(model).tool(wipe).tool(sweep).approver(Silent);
    let agent = agent.shared_log(Arc::clone(&log)).build().unwrap();
    tokio::spawn(async move { agent.run(RunRequest::new("go").run(run.into())).await });
    until("the run asks", async || {
        log.open_approvals().await.unwrap().iter().any(|open| open.run.as_str() == run)
    })
    .await;
}

/// The process that waits measures the time: a step neither expires an approval nor makes it last.
async fn approval_lasts_as_long_as_it_should(by: i64) {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    asking(&database, "run_long", "wipe").await;
    asking(&database, "run_short", "sweep").await;
    SystemClock::set_time_of_day(by);
    let log = database.log();
    until("the short approval expires", async || {
        let short = log.summary(&"run_short".into()).await.unwrap().unwrap();
        short.state == RunState::Finished
    })
    .await;
    let long = log.summary(&"run_long".into()).await.unwrap().unwrap();
    assert!(long.is_open(), "{by}: {long:?}");
    assert_eq!(log.open_approvals().await.unwrap().len(), 1);
    SystemClock::set_time_of_day(-by);
}

/// Runs and texts of this moment stay; those of yesterday go, whichever way the clock is set.
async fn removes_what_is_old_and_nothing_else(by: i64) {
    let folder = Folder::new();
    let day = Duration::from_secs(24 * 60 * 60);
    let keeps = StoreRetention::default().runs(day);
    let options = OpenOptions::new().retention(keeps);
    let database = Database::open_with(folder.file(), options).await.unwrap();
    let other = open(&folder.file()).await;
    let log: Arc<dyn EventLog> = Arc::new(other.log());
    let over = async |run: &str, hours_ago: i64| {
        SystemClock::set_time_of_day(-hours_ago * HOUR_MS);
        let mut writer = RunWriter::new(Arc::clone(&log), run.into());
        append(&mut writer, started(run)).await;
        append(&mut writer, finished()).await;
        let text = other.errors().store(error(run)).await.unwrap();
        SystemClock::set_time_of_day(hours_ago * HOUR_MS);
        text.id
    };
    let kept = over("run_new", 2).await;
    // A write begins a pass if one is due: now, not for the next ten minutes, and after a step either way.
    let goes = async |old: &str| {
        over(old, 24 * 20).await;
        if old == "run_older" {
            SystemClock::set_time_of_day(by);
        }
        until("the old run goes", async || {
            database.errors().store(error("run_other")).await.unwrap();
            let runs = log.runs(RunFilter::new()).await.unwrap();
            let names: Vec<&str> = runs.iter().map(|run| run.run.as_str()).collect();
            assert!(names.contains(&"run_new"), "{by}: {names:?}");
            names == ["run_new"]
        })
        .await;
    };
    goes("run_old").await;
    goes("run_older").await;
    let found = database.errors().find(&kept).await.unwrap();
    assert!(matches!(found, Lookup::Found(_)), "{by}: {found:?}");
    SystemClock::set_time_of_day(-by);
    database.close().await;
    other.close().await;
}

fn error(run: &str) -> NewError {
    let origin = Origin::new(SystemClock.now(), run, run, "c", "sql");
    NewError::new(origin, Code::new(code::TOOL_EXECUTION_FAILED), None, run, &Redactor::new())
}
