//! Runs whose records have lost acknowledged events.

use std::sync::Arc;

use backstop_event_log::EventLog;
use backstop_orchestrator::{LocalOrchestrator, Sequence, Workflow};
use backstop_provider::{ScriptedAnswer, ScriptedProvider};
use backstop_react::Agent;
use backstop_store_sqlite::{Database, Durability};
use layer0::Orchestrator;
use layer0::operator::{Context, Task};

use crate::bench::Bench;
use crate::running::{ASKS, REFUNDS};
use crate::sqlite;

/// Marks each run of a store that has no mark: one event more was acknowledged than its record has.
const LOSE: &str = "INSERT INTO lost_tails SELECT run, last_seq + 1, zeroblob(32), 1000 FROM runs";

/// Spec: J2, C2. It waits for a person to accept the loss.
#[test]
fn lost_tail_is_listed_until_accepted() {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.agent(REFUNDS, ASKS);
    bench.run(&["run", "agent.toml"]).fails(4, "waiting");
    sqlite::execute(&bench.path().join("x.db"), LOSE);
    let listed = bench.run(&["runs", "--stuck", "--json"]).ok().json();
    assert_eq!((listed.len(), &listed[0]["stuck"]), (1, &"lost_tail".into()));
    let shown = bench.run(&["runs", "--stuck"]).ok();
    assert!(shown.out.contains("lost_tail"), "{}", shown.out);
    assert!(shown.err.contains("`backstop resume RUN --accept-lost-tail`"), "{}", shown.err);
    assert!(!shown.err.contains("LocalOrchestrator"), "it is no workflow: {}", shown.err);

    bench.run(&["resume", "last"]).fails(5, "has lost event");
    bench.run(&["resume", "last", "--accept-lost-tail"]).ok();
    let events = bench.run(&["trace", "last", "--json"]).ok().json();
    let of = |wanted: &str| events.iter().find(|event| event["type"] == wanted).unwrap();
    assert_eq!(of("tool.responded")["data"]["error"]["reason"], "tool.interrupted");
    assert!(of("run.resumed")["data"]["lost_tail"]["seq"].is_u64(), "{events:?}");
    assert!(bench.run(&["runs", "--stuck", "--json"]).ok().json().is_empty());
}

/// Spec: J2, C2. The command has no code of a workflow: it names the call that resumes one.
#[test]
fn workflow_with_lost_tail_names_its_program() {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    let file = bench.path().join("x.db");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let run = runtime.block_on(async {
        let database = Database::open(&file, Durability::Normal).await.unwrap();
        let log: Arc<dyn EventLog> = Arc::new(database.log());
        let talker = ScriptedProvider::new([ScriptedAnswer::saying("done")]);
        let talker = Agent::builder(talker).name("talker").shared_log(Arc::clone(&log));
        let line = Workflow::new(Sequence::new("line", ["talker"]), Arc::clone(&log));
        let orchestrator = LocalOrchestrator::builder()
            .operator(talker.build().unwrap())
            .operator(line)
            .build()
            .unwrap();
        let answer = orchestrator.dispatch("line", Task::text("go"), Context::root()).await;
        drop((orchestrator, log));
        database.close().await;
        answer.unwrap().run.unwrap()
    });
    sqlite::execute(&file, LOSE);
    let shown = bench.run(&["runs", "--stuck"]).ok();
    let hint = format!("`LocalOrchestrator::resume_accepting_lost_tail`: {run}\n");
    assert!(shown.err.contains(&hint), "{}", shown.err);
    // The run is over, so nothing is done; to reopen it would need its code.
    bench
        .run(&["resume", run.as_str(), "--reopen", "--accept-lost-tail"])
        .fails(2, "resume_accepting_lost_tail");
}
