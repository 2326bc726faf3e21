//! Numbers in all parts of a run.

use crate::bench::Bench;

const NUMBERS: &str = "3.10,100.00,1234e10,18446744073709551616,-0.0";

const TOOLS: &str = r#"
[agent.policy]
grant = ["process:spawn"]
[[tools]]
kind = "command"
name = "echo"
description = "Gives its arguments back."
schema = { type = "object" }
output_schema = { type = "object", required = ["n"] }
command = ["cat"]
[[tools]]
kind = "command"
name = "price"
description = "Says what it costs."
command = ["printf", "3.10"]
[[tools]]
kind = "command"
name = "list"
description = "Lists what there is."
command = ["printf", ' [100.00, "x", {"b": 1E5, "a": 0.10}] ']
"#;

/// Model, tool, record, next request: what was written arrives, in every reader.
///
/// Spec: P12, T2, D5
#[test]
fn numbers_keep_their_text_end_to_end() {
    let bench = Bench::new();
    let script = format!(
        r#"
[[model]]
tool_calls = [
  {{ id = "c1", name = "echo", arguments = '{{"n": [{NUMBERS}]}}' }},
  {{ id = "c2", name = "price" }},
  {{ id = "c3", name = "list" }},
]
[[model]]
text = "done"
"#
    );
    bench.agent(&script, TOOLS);
    let said = bench.run(&["run", "agent.toml", "--json"]).ok();
    let object = format!(r#"{{"n":[{NUMBERS}]}}"#);
    let expected = [
        format!(r#""arguments":{object}"#),
        format!(r#""output":{object}"#),
        r#""output":"3.10""#.to_owned(),
        r#""output":[100.00,"x",{"a":0.10,"b":1E5}]"#.to_owned(),
    ];
    let holds = |what: &str, text: &str| {
        for expected in &expected {
            assert!(text.contains(expected), "{what}: {expected} is not in {text}");
        }
    };
    holds("run", &said.out);
    let run = said.json()[0]["run"].as_str().unwrap().to_owned();
    holds("trace", &bench.run(&["trace", &run, "--json"]).ok().out);
    bench.run(&["replay", &run]).ok();
    let trace = bench.run(&["trace", &run]).ok().out;
    assert!(trace.contains(&object), "{trace}");
    assert_eq!(said.out.matches(&object).count(), 3, "asked for, requested, given back");

    let last = said.json()[0]["events"].as_array().unwrap().len();
    let forked = bench.run(&["fork", &run, "--at", &(last - 3).to_string(), "--json"]).ok();
    holds("fork", &forked.out);
    bench.run(&["replay", forked.json()[0]["run"].as_str().unwrap()]).ok();
}

/// A person decides about what the model wrote.
///
/// Spec: A1, P12
#[test]
fn an_approval_shows_numbers_as_they_were_written() {
    let bench = Bench::new();
    let script = r#"
[[model]]
tool_calls = [{ id = "c1", name = "pay", arguments = '{"amount": 3.10}' }]
[[model]]
text = "done"
"#;
    let tools = r#"
[agent.policy]
grant = ["process:spawn"]
[[tools]]
kind = "command"
name = "pay"
description = "Pays."
command = ["cat"]
approval = true
"#;
    bench.agent(script, tools);
    let waits = bench.run(&["run", "agent.toml"]).fails(4, "pay");
    assert!(waits.err.contains("3.10"), "{}", waits.err);
    let open = bench.run(&["approvals", "--json"]).ok();
    assert!(open.out.contains(r#""arguments":{"amount":3.10}"#), "{}", open.out);
    let id = open.json()[0]["id"].as_str().unwrap().to_owned();
    bench.run(&["approve", &id, "--by", "ops"]).ok();
    let run = open.json()[0]["run"].as_str().unwrap().to_owned();
    bench.run(&["resume", &run]).ok();
    let trace = bench.run(&["trace", &run, "--json"]).ok().out;
    assert!(trace.contains(r#""output":{"amount":3.10}"#), "{trace}");
}
