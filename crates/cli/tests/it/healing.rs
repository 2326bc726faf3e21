//! Runs that meet a wall: the model reads which one and why, uses another way, and the run completes.

use backstop_provider::{ScriptedAnswer, ScriptedToolCall};
use backstop_testkit::ScriptedEndpoint;
use serde_json::{Value, json};

use crate::bench::Bench;

/// A tool that runs its input as a command line.
const TOOL: &str = r#"
[agent.policy]
grant = ["process:spawn"]
[[tools]]
kind = "command"
name = "look"
description = "d"
command = ["python3", "-c", "import json, subprocess, sys; sys.exit(subprocess.run(['sh', '-c', json.load(sys.stdin)['line']]).returncode)"]
schema = { type = "object", properties = { line = { type = "string" } }, required = ["line"] }
"#;
/// Command line that each environment allows.
const READS: &str = "cat data/a.txt";

/// Lets a model try a command line within an environment, then another one; `code` and `line` are the result of the
/// first that it reads.
#[track_caller]
fn check(environment: &str, tries: &str, code: &str, line: &str) {
    let call = |id: &str, line: &str| {
        let call = ScriptedToolCall::new(id, "look", json!({ "line": line }));
        ScriptedAnswer::default().tool_calls([call])
    };
    let answers =
        [call("c1", tries), call("c2", READS), ScriptedAnswer::saying("I took the file.")];
    let model = ScriptedEndpoint::openai(answers);
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    std::fs::create_dir(bench.path().join("data")).unwrap();
    bench.write("data/a.txt", "hello from data");
    bench.write("other.txt", "not yours");
    bench.write(
        "agent.toml",
        &format!(
            "[agent]\ninput = \"look\"\n[model]\nprovider = \"openai\"\nmodel = \"m\"\nbase_url = \"{}\"\n\
             {TOOL}[environment]\nread = [\"./data\"]\n{environment}\n",
            model.base_url()
        ),
    );
    let events = bench.run(&["run", "agent.toml", "--events"]).ok().json();

    let requests = model.requests();
    assert_eq!(requests.len(), 3);
    let read = |request: usize| {
        let messages = requests[request].body["messages"].as_array().unwrap();
        messages.last().unwrap()["content"].as_str().unwrap().to_owned()
    };
    let first = read(1);
    assert_eq!(first.lines().next().unwrap().find(line), Some(0), "{first}");
    let is_seen = code.starts_with("env.");
    assert_eq!(first.contains("\n[granted: read ./data, write "), !is_seen, "{first}");
    assert_eq!(read(2), "hello from data");

    let of = |kind: &'static str| events.iter().filter(move |event| event["type"] == kind);
    let ends: Vec<(&Value, &Value)> = of("tool.responded")
        .map(|event| (&event["data"]["ok"], &event["data"]["error"]["reason"]))
        .collect();
    assert_eq!(ends, [(&json!(false), &json!(code)), (&json!(true), &Value::Null)]);
    assert_eq!(of("run.finished").next().unwrap()["data"]["outcome"], "completed");
    bench.run(&["replay", "last"]).ok();
}

/// Spec: N3, T5
#[test]
fn denied_host_is_gone_without() {
    let fetches = "python3 -c 'import urllib.request as r; r.urlopen(\"http://example.org/\")'";
    let line = "env.network_denied: host example.org is not among api.example.com";
    let rules = "network = { hosts = [\"api.example.com\"] }";
    check(rules, fetches, "env.network_denied", line);
}

/// Spec: N3, T5
#[test]
fn path_outside_is_gone_without() {
    let line = "Tool 'look' failed: Code exit_1: cat: other.txt: Permission denied";
    check("", "cat other.txt", "tool.execution_failed", line);
    let line = "Tool 'look' failed: Code exit_1: cat: /etc/shadow: Permission denied";
    check("write = [\"./data\"]", "cat /etc/shadow", "tool.execution_failed", line);
}

/// Spec: N3, T5
#[test]
fn too_much_memory_is_gone_without() {
    let takes = "python3 -c 'len(bytearray(1 << 30))'";
    let line = "env.resource_exceeded: memory 256 MiB reached";
    check("memory_mib = 256", takes, "env.resource_exceeded", line);
}

/// Spec: N3, T5
#[test]
fn too_many_processes_are_gone_without() {
    let starts = "for each in $(seq 64); do sleep 60 & done; wait";
    let line = "env.resource_exceeded: processes 16 reached";
    check("processes = 16", starts, "env.resource_exceeded", line);
}
