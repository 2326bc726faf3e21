//! `backstop copy`, and copies of runs with another model.

use serde_json::{Value, json};

use crate::bench::Bench;
use crate::running::{ASKS, REFUNDS};
use crate::sqlite;

fn bench() -> Bench {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    let script =
        "[[model]]\ntool_calls = [{ id = \"c1\", name = \"t\" }]\n[[model]]\ntext = \"ok\"\n";
    let tool = "[agent.policy]\ngrant = [\"process:spawn\"]\n[[tools]]\nkind = \"command\"\nname = \"t\"\n\
                description = \"d\"\ncommand = [\"sh\", \"-c\", \"echo secret trouble >&2; exit 3\"]\n";
    bench.agent(script, tool);
    bench
}

fn begin(bench: &Bench, session: &str) -> String {
    let ran = bench.run(&["run", "agent.toml", "--session", session, "--json"]).ok().json();
    ran[0]["run"].as_str().unwrap().to_owned()
}

/// Spec: D15. Records are carried to the byte, with the errors that they name, and verify there.
#[test]
fn records_are_carried_to_another_store() {
    let bench = bench();
    let (first, next) = (begin(&bench, "s-1"), begin(&bench, "s-1"));
    let other = begin(&bench, "s-2");
    let copy = |more: &[&str]| {
        bench.run(&[&["copy", "--from", "sqlite:x.db", "--to", "sqlite:y.db"], more].concat())
    };
    assert_eq!(copy(&["--session", "s-1"]).ok().out, "2 runs copied\n");
    assert_eq!(copy(&["--session", "s-1"]).ok().out, "0 runs copied, 2 runs there already\n");
    let there = |args: &[&str]| bench.run(&[args, &["--store", "sqlite:y.db"]].concat());
    for run in [&first, &next] {
        let here = bench.run(&["export", run]).ok().out;
        assert_eq!(there(&["export", run]).ok().out, here);
        there(&["replay", run]).ok();
    }
    assert_eq!(there(&["runs", "--json"]).ok().json().len(), 2);
    let error = there(&["errors", "list", "--json"]).ok().json().remove(0);
    let shown = there(&["errors", "show", error["id"].as_str().unwrap()]).ok().out;
    assert!(shown.contains("secret trouble"), "{shown}");
    let all = copy(&["--json"]).ok().json().remove(0);
    assert_eq!(all, json!({ "copied": 1, "known": 2, "open": [], "failed": [] }));
    there(&["verify", &other]).ok();
    // A session can continue there.
    there(&["run", "agent.toml", "--session", "s-1"]).ok();
    copy(&["--since", "2h"]).ok();
}

/// Spec: D15. What is open, changed or another record is not carried.
#[test]
fn what_cannot_be_carried_is_said() {
    let bench = bench();
    let run = begin(&bench, "s-1");
    bench.agent(REFUNDS, ASKS);
    let waiting = bench.run(&["run", "agent.toml", "--json"]).json();
    let waiting = waiting[0]["run"].as_str().unwrap();
    let copy = |from: &str, to: &str| bench.run(&["copy", "--from", from, "--to", to]);
    let said = copy("sqlite:x.db", "sqlite:y.db").ok();
    assert_eq!(said.out, "1 run copied\n");
    assert!(said.err.contains(&format!("{waiting} is open, and was left out")), "{}", said.err);
    sqlite::execute(&bench.path().join("x.db"), "UPDATE events SET actor = 'person' WHERE seq = 2");
    copy("sqlite:x.db", "sqlite:z.db").fails(6, "hash chain broken at seq 2");
    let none = bench.run(&["runs", "--json", "--store", "sqlite:z.db"]).ok().json();
    assert_eq!(none, Vec::<Value>::new());
    copy("sqlite:none.db", "sqlite:z.db").fails(5, "no database");
    copy("x.db", "sqlite:z.db").fails(2, "--from");
    let _ = run;
}

/// Spec: D1, D15. A keyed run with erased events verifies where it is copied to; a forged one is not copied.
#[test]
fn erased_events_verify_in_a_copy() {
    let bench = bench().with("BACKSTOP_LOG_KEY", "correct horse battery staple");
    let run = begin(&bench, "s-1");
    bench.run(&["redact", &run, "2"]).ok();
    let copy = |to: &str| bench.run(&["copy", "--from", "sqlite:x.db", "--to", to]);
    assert_eq!(copy("sqlite:y.db").ok().out, "1 run copied\n");
    bench.run(&["verify", &run, "--store", "sqlite:y.db"]).ok();
    let forged = "UPDATE erasures SET seal = zeroblob(32)";
    sqlite::execute(&bench.path().join("x.db"), forged);
    copy("sqlite:z.db").fails(6, "erased without the key");
}

/// A run that is truncated at first, and complete after it is reopened.
const CUT: &str =
    "[[model]]\ntext = \"half\"\nstop_reason = \"max_tokens\"\n[[model]]\ntext = \"whole\"\n";

/// Spec: D15. A run that was copied is reopened, and others begin after it.
#[test]
fn reopened_run_is_copied_to_its_end() {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.agent(CUT, "");
    let begin = |session: &str| {
        let run =
            bench.run(&["run", "agent.toml", "--session", session, "--json"]).json().remove(0);
        run["run"].as_str().unwrap().to_owned()
    };
    let copy = || bench.run(&["copy", "--from", "sqlite:x.db", "--to", "sqlite:y.db"]);
    let there = |args: &[&str]| bench.run(&[args, &["--store", "sqlite:y.db"]].concat());
    let (first, both) = (begin("s-1"), begin("s-2"));
    assert_eq!(copy().ok().out, "2 runs copied\n");
    bench.run(&["resume", &first, "--reopen"]).ok();
    let next = begin("s-1");
    assert_eq!(copy().ok().out, "2 runs copied, 1 run there already\n");
    for run in [&first, &next] {
        let here = bench.run(&["export", run]).ok().out;
        assert_eq!(there(&["export", run]).ok().out, here);
        there(&["verify", run]).ok();
    }
    // The run that continued there stays unchanged.
    there(&["resume", &both, "--reopen"]).ok();
    assert_eq!(copy().ok().out, "0 runs copied, 3 runs there already\n");
    // After it is reopened in both stores, it is two records; the others are copied.
    bench.run(&["resume", &both, "--reopen"]).ok();
    let later = begin("s-3");
    let said = copy().fails(5, &format!("{both} was left out: its record in the other store"));
    assert_eq!(said.out, "1 run copied, 2 runs there already, 1 run left out\n");
    there(&["verify", &later]).ok();
    let json = bench.run(&["copy", "--from", "sqlite:x.db", "--to", "sqlite:y.db", "--json"]);
    let json = json.json().remove(0);
    assert_eq!((&json["known"], &json["failed"][0]["run"]), (&json!(3), &json!(both)));
}

/// Spec: D7, D15. A copy in another store follows a run that was reopened since it was carried there.
#[test]
fn fork_carries_the_rest_of_earlier_runs() {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.agent(CUT, "");
    let first = bench.run(&["run", "agent.toml", "--session", "s-1", "--json"]).json().remove(0);
    let first = first["run"].as_str().unwrap();
    bench.run(&["copy", "--from", "sqlite:x.db", "--to", "sqlite:y.db"]).ok();
    bench.run(&["resume", first, "--reopen"]).ok();
    bench.agent("[[model]]\ntext = \"next\"\n", "");
    bench.run(&["run", "agent.toml", "--session", "s-1"]).ok();
    bench.run(&["fork", "last", "--at", "1", "--to", "sqlite:y.db"]).ok();
    let export = |store: &str| bench.run(&["export", first, "--store", store]).ok().out;
    assert_eq!(export("sqlite:x.db"), export("sqlite:y.db"));
}

/// Spec: D15
#[test]
fn unknown_session_is_not_copied_silently() {
    let bench = bench();
    begin(&bench, "s-1");
    let copy = |more: &[&str]| {
        bench.run(&[&["copy", "--from", "sqlite:x.db", "--to", "sqlite:y.db"], more].concat())
    };
    copy(&["--session", "s-2"]).fails(2, "there is no session `s-2`");
    assert_eq!(copy(&["--session", "s-1", "--since", "2100-01-01"]).ok().out, "0 runs copied\n");
}

/// Spec: D7. Another model is asked, and what it asks the tools is answered from the record.
#[test]
fn another_model_gets_the_recorded_answers() {
    let bench = bench();
    let run = begin(&bench, "s-1");
    let events = bench.run(&["trace", &run, "--json"]).ok().json();
    let answered = |events: &[Value]| {
        let answers = events.iter().filter(|event| event["type"] == "tool.responded");
        answers.map(|event| event["data"]["error"]["reason"].clone()).collect::<Vec<_>>()
    };
    let fork = |agent: &str| {
        let args = ["fork", &run, "--at", "1", "--tools", "recorded", "--agent", agent, "--json"];
        let copy = bench.run(&args).ok().json().remove(0)["run"].as_str().unwrap().to_owned();
        bench.run(&["trace", &copy, "--json"]).ok().json()
    };
    // The tool leaves a file where it runs.
    let text = std::fs::read_to_string(bench.path().join("agent.toml")).unwrap();
    bench.write("same.toml", &text.replace("exit 3", "touch ran; exit 3"));
    assert_eq!(answered(&fork("same.toml")), answered(&events));
    assert!(!bench.path().join("ran").exists(), "no tool runs");
    let calls = "tool_calls = [{ id = \"c1\", name = \"t\", arguments = { n = 1 } }]";
    let script = format!("[[model]]\n{calls}\n[[model]]\ntext = \"ok\"\n");
    bench.write("script.toml", &script);
    let other = text.lines().map(|line| match line.starts_with("script") {
        true => "script = \"script.toml\"".to_owned(),
        false => line.to_owned(),
    });
    bench.write("other.toml", &other.collect::<Vec<_>>().join("\n"));
    assert_eq!(answered(&fork("other.toml")), ["tool.unavailable"]);
}
