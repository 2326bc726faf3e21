//! Child runs in the output of the command.

use std::collections::BTreeMap;

use backstop_event_log::Inbox;
use backstop_provider::ScriptedProvider;
use backstop_react::{Agent, RunRequest};
use backstop_store_sqlite::{Database, Durability};
use backstop_tool::{FnTool, ToolError};
use layer0::stop::Stop;
use serde_json::json;

use crate::bench::Bench;

const STORE: [&str; 2] = ["--store", "sqlite:x.db"];

/// Records a root that waits for an approval of a child run. Returns the child run and the approval.
async fn waiting_tree(bench: &Bench) -> (String, String) {
    let database = Database::open(bench.path().join("x.db"), Durability::Normal).await.unwrap();
    let pay = FnTool::new("pay", "Pays.", |_: BTreeMap<String, String>| async {
        Ok::<_, ToolError>("paid")
    });
    let clerk = Agent::builder(ScriptedProvider::calling("pay", json!({}), "paid"))
        .name("clerk")
        .tool(pay)
        .require_approval("pay")
        .log(database.log())
        .build()
        .unwrap();
    let root = ScriptedProvider::calling("clerk", json!({"input": "pay it"}), "done");
    let root = Agent::builder(root).name("root").tool(clerk.as_tool("Pays.")).log(database.log());
    let root = root.build().unwrap();
    let outcome = root.run(RunRequest::new("go").run("run_root".into())).await.unwrap();
    assert_eq!(outcome.stop, Stop::WaitingApproval);
    let open = database.log().open_approvals().await.unwrap().remove(0);
    database.close().await;
    (open.run.to_string(), open.id.to_string())
}

/// Spec: O2
#[tokio::test]
async fn run_below_is_named_for_its_root() {
    let bench = Bench::new();
    let (child, approval) = waiting_tree(&bench).await;
    let approved = bench.run(&["approve", &approval, "--by", "ops", STORE[0], STORE[1]]).ok();
    assert!(approved.err.contains("backstop resume run_root"), "{}", approved.err);

    let said = format!("run {child} was dispatched by run_root: going on with run_root");
    for args in [vec!["resume", &child], vec!["resume", &child, "--reopen"]] {
        let resumed = bench.run(&[&args[..], &STORE].concat());
        assert!(resumed.err.contains(&said), "{}", resumed.err);
    }

    let cancelled = bench.run(&["cancel", &child, STORE[0], STORE[1]]).ok();
    let said = format!("run {child} was dispatched by run_root: stopping run_root");
    assert!(cancelled.err.contains(&said), "{}", cancelled.err);
    for run in bench.run(&["runs", "--json", STORE[0], STORE[1]]).ok().json() {
        assert_eq!(run["reason"], "run.cancelled");
        bench.run(&["replay", run["run"].as_str().unwrap(), STORE[0], STORE[1]]).ok();
    }
}
