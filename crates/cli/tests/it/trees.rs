//! Dispatched runs in the output for people.

use std::sync::Arc;

use backstop_event_log::{EventLog, RunFilter};
use backstop_provider::{ErrorKind, ScriptedAnswer, ScriptedProvider, ScriptedToolCall};
use backstop_react::{Agent, AgentBuilder, ReopenRequest, RunRequest};
use backstop_store_sqlite::{Database, Durability};
use serde_json::{Value, json};

use crate::bench::Bench;

/// An agent `lead` that dispatches `hosts` twice at once, which answers and then fails. The failed run is reopened
/// afterwards.
fn bench() -> Bench {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    let file = bench.path().join("x.db");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let database = Database::open(&file, Durability::Normal).await.unwrap();
        let log: Arc<dyn EventLog> = Arc::new(database.log());
        let agent = |model: ScriptedProvider, name: &'static str| -> AgentBuilder {
            Agent::builder(model).name(name).shared_log(Arc::clone(&log))
        };
        let hosts = ScriptedProvider::new([
            ScriptedAnswer::saying("web-3 is up"),
            ScriptedAnswer::failing(ErrorKind::QuotaExhausted),
            ScriptedAnswer::saying("web-4 is up"),
        ]);
        let hosts = agent(hosts, "hosts").build().unwrap();
        let call = |id, host: &str| ScriptedToolCall::new(id, "hosts", json!({ "input": host }));
        let both = [call("c1", "web-3"), call("c2", "web-4")];
        let lead = ScriptedProvider::new([
            ScriptedAnswer::saying("").tool_calls(both),
            ScriptedAnswer::saying("done"),
        ]);
        let lead = agent(lead, "lead").tool(hosts.as_tool("Operates hosts.")).build().unwrap();
        lead.run(RunRequest::new("look")).await.unwrap();
        let failed = log.runs(RunFilter::new()).await.unwrap();
        let failed =
            failed.into_iter().find(|run| run.outcome == Some(layer0::stop::Outcome::Failed));
        hosts.reopen(ReopenRequest::new(failed.unwrap().run)).await.unwrap();
        drop((lead, hosts, log));
        database.close().await;
    });
    bench
}

fn listed(bench: &Bench, more: &[&str]) -> Vec<Value> {
    bench.run(&[&["runs", "--json"], more].concat()).ok().json()
}

/// Spec: D12, C2
#[test]
fn runs_below_stand_below_their_caller() {
    let bench = bench();
    let runs = listed(&bench, &[]);
    let root = runs.iter().find(|run| run["parent"].is_null()).unwrap()["run"].as_str().unwrap();
    assert_eq!(runs.len(), 3);
    assert!(runs.iter().all(|run| run["root"] == root), "{runs:?}");
    let table = bench.run(&["runs"]).ok().out;
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].ends_with("NOTE") && lines[1].starts_with(root), "{table}");
    assert!(lines[2].starts_with("  run_") && lines[3].starts_with("  run_"), "{table}");
    assert_eq!(table.matches("reopened on its own").count(), 1, "{table}");
    // A filter also matches callers, and a run whose caller it excludes.
    assert_eq!(bench.run(&["runs", "--agent", "lead"]).ok().out, table);
    let alone = bench.run(&["runs", "--agent", "hosts", "--limit", "1"]).ok().out;
    assert!(
        alone.contains("\nrun_") && alone.contains(&format!("dispatched by {root}")),
        "{alone}"
    );
    assert_eq!(alone.lines().count(), 2, "{alone}");
}

/// Spec: D10, O3
#[test]
fn a_trace_nests_the_runs_below() {
    let bench = bench();
    let root = bench.run(&["runs", "--agent", "lead", "--json"]).ok().json().remove(0);
    let root = root["run"].as_str().unwrap();
    let whole = bench.run(&["trace", root]).ok().out;
    let at = |text: &str| whole.find(text).unwrap_or_else(|| panic!("{text} is not in {whole}"));
    assert!(at("operator.dispatched             hosts as run_") < at("s    hosts: run.started"));
    assert!(at(", hosts.2 here\n") < at("s    hosts.2: run.started"));
    assert!(whole.contains("hosts failed (provider.quota_exhausted): 1 model call"), "{whole}");
    assert!(whole.trim_end().lines().last().unwrap().contains(": run.finished"), "{whole}");

    let flat = bench.run(&["trace", root, "--flat"]).ok().out;
    let json = bench.run(&["trace", root, "--json"]).ok().json();
    assert!(!flat.contains("hosts: run.started"), "{flat}");
    assert!(json.iter().all(|event| event["run"] == root));
    assert_eq!(flat.lines().count(), json.len());
    let followed = bench.run(&["trace", root, "--follow"]).ok().out;
    assert_eq!(followed, whole, "the same live and read later");
}

/// Spec: D10, D1
#[test]
fn a_damaged_run_below_is_left_out() {
    let bench = bench();
    let runs = listed(&bench, &[]);
    let root = runs.iter().find(|run| run["parent"].is_null()).unwrap()["run"].as_str().unwrap();
    let file = bench.path().join("x.db");
    let bytes = std::fs::read(&file).unwrap();
    let (from, to) = (b"web-4 is up", b"web-5 is up");
    let mut changed = bytes.clone();
    for at in 0..bytes.len() - from.len() {
        if bytes[at..].starts_with(from) {
            changed[at..at + to.len()].copy_from_slice(to);
        }
    }
    assert_ne!(bytes, changed);
    std::fs::write(file, changed).unwrap();
    let traced = bench.run(&["trace", root]).fails(6, "is left out: ");
    assert!(traced.out.contains("s    hosts: run.started"), "{}", traced.out);
    assert!(!traced.out.contains("s    hosts.2: run.started"), "{}", traced.out);
    bench.run(&["trace", root, "--html", "page.html"]).fails(6, "is left out: ");
    assert!(bench.path().join("page.html").exists());
}
