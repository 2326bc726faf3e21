//! Output under `--json` of commands that decide or write.

use serde_json::json;

use crate::bench::{Bench, Ran};
use crate::running::{ASKS, REFUNDS};

fn waiting() -> (Bench, String, String) {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.agent(REFUNDS, ASKS);
    bench.run(&["run", "agent.toml"]).fails(4, "waiting for approval");
    let open = bench.run(&["approvals", "--json"]).ok().json().remove(0);
    let text = |key: &str| open[key].as_str().unwrap().to_owned();
    (bench, text("run"), text("id"))
}

/// Returns the only object on standard output, if standard error is empty.
#[track_caller]
fn object(ran: Ran) -> serde_json::Value {
    let ran = ran.ok();
    assert_eq!((ran.err.as_str(), ran.out.lines().count()), ("", 1), "{}", ran.out);
    ran.json().remove(0)
}

/// Spec: C2
#[test]
fn a_decision_is_an_object() {
    let (bench, run, id) = waiting();
    let changed = ["--arguments", "{\"order\": 8}", "--by", "ada", "--reason", "it is eight"];
    let approved = object(bench.run(&[&["approve", "last", "--json"], &changed[..]].concat()));
    let expected = json!({
        "id": id, "run": run, "tool": "refund", "arguments": { "order": 8 }, "verdict": "approve",
        "by": "ada", "reason": "it is eight", "resume": run,
    });
    assert_eq!(approved, expected);
    let again = bench.run(&["approve", &id, "--by", "ada", "--json"]).fails(2, "input.invalid");
    let error: serde_json::Value = serde_json::from_str(again.err.trim()).unwrap();
    assert_eq!((&error["exit"], &error["effect"]), (&json!(2), &json!("none")));

    let (bench, run, id) = waiting();
    let denied = ["deny", &id, "--by", "ada", "--reason", "not today", "--json"];
    let denied = object(bench.run(&denied));
    let expected = json!({
        "id": id, "run": run, "tool": "refund", "arguments": { "order": 7 }, "verdict": "deny",
        "by": "ada", "reason": "not today", "resume": run,
    });
    assert_eq!(denied, expected);
}

/// Spec: A1. It stands in the inbox of the run first, then in its record.
#[test]
fn a_second_decision_says_what_was_decided() {
    for (first, how, what) in [
        (&["approve", "--reason", "it is fine"][..], "approved", " (it is fine)"),
        (&["approve"], "approved", ""),
        (&["deny", "--reason", "not today"], "denied", " (not today)"),
    ] {
        let (bench, run, id) = waiting();
        bench.run(&[&first[..1], &[&id, "--by", "ada"], &first[1..]].concat()).ok();
        let check = |goes_on: &str| {
            for again in [&["approve"][..], &["deny", "--reason", "no"]] {
                let again = [&again[..1], &[&id, "--by", "bob"], &again[1..]].concat();
                let said = bench
                    .run(&again)
                    .fails(2, &format!("no open approval `{id}`: ada {how} it at 20"));
                let hint = format!("an approval is decided once; the run {goes_on}\n");
                assert!(
                    said.err.contains(&format!("Z{what}\n")) && said.err.contains(&hint),
                    "{}",
                    said.err
                );
            }
        };
        check(&format!("goes on with `backstop resume {run}`"));
        bench.run(&["resume", &run]).ok();
        check("is over");
    }
}

/// Spec: C2
#[test]
fn a_cancellation_is_an_object() {
    let (bench, run, _) = waiting();
    let cancelled = object(bench.run(&["cancel", &run, "--by", "ops", "--json"]));
    let expected = json!({ "run": run, "state": "finished", "outcome": "cancelled", "by": "ops" });
    assert_eq!(cancelled, expected);
    let again = bench.run(&["cancel", &run, "--json"]).fails(2, "is over");
    assert!(again.err.starts_with("{\"code\":\"input.invalid\""), "{}", again.err);
}

/// Spec: C2
#[test]
fn a_settlement_is_an_object() {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.agent(
        "[[model]]\ntool_calls = [{ id = \"c1\", name = \"pay\" }]\n[[model]]\n\
         error = { kind = \"auth_failed\" }\n",
        "[[tools]]\nkind = \"command\"\nname = \"pay\"\ndescription = \"d\"\ncapabilities = []\n\
         command = [\"false\"]\n",
    );
    let failed = bench.run(&["run", "agent.toml", "--json"]).fails(1, "").json().remove(0);
    let call = ["resolve", "last", "c1", "--happened", "--output", "{\"id\":7}", "--by", "ada"];
    let settled = object(bench.run(&[&call[..], &["--json"]].concat()));
    let expected = json!({
        "run": failed["run"], "call_id": "c1", "verdict": "happened", "output": { "id": 7 },
        "by": "ada",
    });
    assert_eq!(settled, expected);
}

/// Spec: W8
#[test]
fn what_init_wrote_is_an_object() {
    let bench = Bench::new();
    let written = object(bench.run(&["init", "--json"]));
    let expected = json!({ "files": ["agent.toml", "script.toml"], "provider": "script" });
    assert_eq!(written, expected);
    bench.run(&["init", "--json"]).fails(2, "\"code\":\"input.invalid\"");
    let keyed = Bench::new().with("OPENAI_API_KEY", "sk-0123456789");
    let written = object(keyed.run(&["init", "mine.toml", "--json"]));
    assert_eq!(written, json!({ "files": ["mine.toml"], "provider": "openai" }));
}

/// Interactive commands, and those that write a file for a shell or for `man`, have nothing to report.
const WITHOUT: [&str; 5] = ["chat", "completions", "help", "man", "mcp"];

/// Spec: C2
#[test]
fn every_command_that_reports_has_json() {
    let bench = Bench::new();
    let commands = |of: &[&str]| {
        let help = bench.run(&[of, &["--help"]].concat()).ok().out;
        // The top-level help lists commands in groups.
        let listed = match help.split_once("Commands:\n") {
            Some((_, listed)) => listed.split("\n\n").next().unwrap(),
            None if of.is_empty() => help.split("\nOptions:").next().unwrap(),
            None => "",
        };
        let names =
            listed.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        let names: Vec<String> = names
            .filter_map(|line| line.split_whitespace().next())
            .map(ToOwned::to_owned)
            .collect();
        (names, help.contains("--json"))
    };
    let (all, _) = commands(&[]);
    assert!(all.len() > 25, "{all:?}");
    for name in all.iter().map(String::as_str).filter(|name| !WITHOUT.contains(name)) {
        let (below, has) = commands(&[name]);
        assert!(has || !below.is_empty(), "{name} has no --json");
        for below in below.iter().map(String::as_str).filter(|name| *name != "help") {
            assert!(commands(&[name, below]).1, "{name} {below} has no --json");
        }
    }
}
