//! Decisions of people about calls of unknown outcome, through the command.

use serde_json::{Value, json};

use crate::bench::Bench;

const ASKS_ONCE: &str = r#"
[[model]]
tool_calls = [{ id = "c1", name = "pay", arguments = {} }]
[[model]]
error = { kind = "auth_failed" }
[[model]]
text = "done"
"#;

const FAILS: &str = r#"
[[tools]]
kind = "command"
name = "pay"
description = "Pays."
schema = { type = "object" }
command = ["sh", "-c", "echo lost >&2; exit 1"]
[agent.policy]
grant = ["process:spawn"]
"#;

/// Spec: T14, C2. A call that failed and may have acted is settled, once; the model of the reopened run reads it.
#[test]
fn a_person_settles_a_call_by_command() {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.agent(ASKS_ONCE, FAILS);
    let failed = bench.run(&["run", "agent.toml", "--json"]).fails(1, "").json().remove(0);
    let run = failed["run"].as_str().unwrap();

    for (args, why) in [
        (&["resolve", run, "c1"][..], "required"),
        (&["resolve", run, "c1", "--happened", "--did-not"], "cannot be used with"),
        (&["resolve", run, "c1", "--happened", "--output", "{"], "no JSON"),
        (&["resolve", run, "c1", "--did-not", "--output", "1"], "cannot be used with"),
        (&["resolve", run, "c2", "--happened"], "calls of unknown outcome: `c1`"),
        (&["resolve", "run_none", "c1", "--happened"], "no run `run_none`"),
    ] {
        bench.run(args).fails(2, why);
    }
    let settle = ["resolve", "last", "c1", "--happened", "--output", "{\"id\":7}", "--by", "ada"];
    let settled = bench.run(&settle).ok();
    assert!(settled.err.contains("resume") && settled.err.contains("--reopen"), "{}", settled.err);
    bench.run(&settle).fails(2, "is settled already");

    let done = bench.run(&["resume", run, "--reopen", "--json"]).ok().json().remove(0);
    let events = done["events"].as_array().unwrap();
    let resolved = events.iter().find(|event| event["type"] == "tool.resolved").unwrap();
    let expected = json!({
        "call_id": "c1", "by": "ada", "verdict": "happened", "output": {"id": 7},
        "message": "ada says that call `c1` of `pay` happened. It answered: {\"id\":7}",
    });
    assert_eq!(resolved["data"], expected);
    assert_eq!(resolved["actor"], "person");
    let trace = bench.run(&["trace", run]).ok().out;
    assert!(trace.contains("c1 happened by ada"), "{trace}");
    bench.run(&["verify", run]).ok();
    let replayed = bench.run(&["replay", run, "--json"]).ok().json().remove(0);
    assert_eq!(replayed["divergence"], Value::Null);
}
