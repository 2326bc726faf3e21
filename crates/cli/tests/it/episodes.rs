//! Runs that continue after their end: `resume --reopen`, and copies of them.

use serde_json::Value;

use crate::bench::Bench;

const TOOL: &str = r#"
[agent.policy]
grant = ["process:spawn"]
[[tools]]
kind = "command"
name = "note"
description = "Notes."
command = ["sh", "-c", "echo noted >> notes; echo ok"]
"#;

const SCRIPT: &str = r#"
[[model]]
tool_calls = [{ id = "c1", name = "note", arguments = {} }]
[[model]]
error = { kind = "auth_failed" }
[[model]]
text = "done"
[[model]]
text = "more"
"#;

fn run_of(said: &Value) -> String {
    said["run"].as_str().unwrap().to_owned()
}

/// Spec: D12, C3
#[test]
fn a_failed_run_names_the_command_that_helps() {
    let bench = Bench::new();
    bench.agent(SCRIPT, TOOL);
    let failed = bench.run(&["run", "agent.toml"]).fails(1, "provider.auth_failed");
    let command = failed.err.lines().find(|line| line.contains("--reopen")).unwrap();
    let words: Vec<&str> = command.split_whitespace().skip(1).collect();
    assert_eq!((words[0], words[2]), ("resume", "--reopen"), "{command}");
    let done = bench.run(&words).ok();
    assert!(done.out.contains("done"), "{}", done.out);
    assert_eq!(std::fs::read_to_string(bench.path().join("notes")).unwrap(), "noted\n");
    let run = words[1];
    bench.run(&["replay", run]).ok();
    let trace = bench.run(&["trace", run]).ok().out;
    assert!(trace.contains("run.reopened"), "{trace}");

    let refused = bench.run(&["resume", run, "--reopen", "--json"]);
    assert_eq!(refused.code, 2, "{}", refused.err);
    let error: Value = serde_json::from_str(refused.err.trim()).unwrap();
    assert_eq!(error["code"], "run.not_reopenable", "{error}");
    assert!(error["message"].as_str().unwrap().contains("the run completed"), "{error}");
    assert!(error["hint"].as_str().unwrap().contains("backstop fork"), "{error}");
}

/// Spec: D12, B2, C3
#[test]
fn a_budget_needs_more_of_it() {
    let bench = Bench::new();
    let script = SCRIPT.replace("error = { kind = \"auth_failed\" }", "text = \"done\"");
    bench.agent(&script, &format!("[agent.budget]\nmax_model_calls = 1\n{TOOL}"));
    let stopped = bench.run(&["run", "agent.toml"]).fails(3, "budget.model_calls");
    assert!(stopped.err.contains("--reopen --budget max_model_calls=+20"), "{}", stopped.err);
    bench
        .run(&["resume", "last", "--reopen"])
        .fails(2, "give it more: `--budget max_model_calls=+N`");
    for (given, text) in [
        ("max_model_calls=3", "write KEY=+N"),
        ("max_calls=+3", "unknown budget `max_calls`"),
        ("max_model_calls=+0", "more than nothing"),
        ("max_model_calls=+0.5", "invalid value 'max_model_calls=+0.5'"),
    ] {
        bench.run(&["resume", "last", "--reopen", "--budget", given]).fails(2, text);
    }
    bench.run(&["resume", "last", "--budget", "max_model_calls=+1"]).fails(2, "--reopen");
    let more = ["resume", "last", "--reopen", "--budget", "max_model_calls=+1", "--by", "ops"];
    let done = bench.run(&[&more[..], &["--input", "hurry", "--json"]].concat()).ok();
    let report = &done.json()[0];
    assert_eq!(
        (&report["output"], &report["usage"]["model_attempts"]),
        (&"done".into(), &2.into())
    );
    let opened = report["events"].as_array().unwrap().iter();
    let opened = opened.filter(|event| event["type"] == "run.reopened").collect::<Vec<_>>();
    assert_eq!(opened.len(), 1);
    let expected = serde_json::json!({
        "by": "ops", "reason": "budget.model_calls", "budget": { "max_model_calls": 1 },
        "message": "hurry", "cause": null,
    });
    assert_eq!(opened[0]["data"], expected);
    let status = bench.run(&["runs", "--json"]).ok().json().remove(0);
    assert_eq!((&status["state"], &status["outcome"]), (&"finished".into(), &"completed".into()));
}

/// Spec: D12
#[test]
fn a_run_that_is_followed_is_not_reopened() {
    let bench = Bench::new();
    bench.agent(SCRIPT, TOOL);
    let failed = bench.run(&["run", "agent.toml", "--session", "s-1", "--json"]);
    let run = run_of(&failed.json()[0]);
    bench.agent("[[model]]\ntext = \"next\"\n", TOOL);
    bench.run(&["run", "agent.toml", "--session", "s-1"]).ok();
    let refused = bench.run(&["resume", &run, "--reopen"]);
    let refused = refused.fails(2, "is followed by run");
    assert!(refused.err.contains("backstop fork"), "{}", refused.err);
}

/// Spec: D7, D12
#[test]
fn a_copy_of_a_completed_run_takes_input() {
    let bench = Bench::new();
    bench.agent("[[model]]\ntext = \"one\"\n[[model]]\ntext = \"two\"\n", "");
    let done = bench.run(&["run", "agent.toml", "--json"]).ok();
    let last = done.json()[0]["events"].as_array().unwrap().len().to_string();
    bench.run(&["fork", "last", "--at", &last]).fails(2, "it needs an input to go on");
    assert_eq!(bench.run(&["runs", "--json"]).ok().json().len(), 1, "nothing was copied");
    let copy = bench.run(&["fork", "last", "--at", &last, "--input", "and now?", "--json"]).ok();
    assert_eq!(copy.json()[0]["output"], "two");
    bench.run(&["replay", &run_of(&copy.json()[0])]).ok();
}

/// Returns the commands on the line after a text.
fn offered<'a>(told: &'a str, behind: &str) -> Vec<&'a str> {
    let mut lines = told.lines().skip_while(|line| !line.contains(behind)).skip(1);
    lines.next().unwrap().split_whitespace().skip(1).collect()
}

/// Spec: D12
#[test]
fn mended_file_is_offered_to_go_on_with() {
    let fails = "[[model]]\nerror = { kind = \"auth_failed\" }\n".repeat(3);
    for name in ["", "name = \"triage\"\n"] {
        let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
        bench.agent(&format!("{fails}[[model]]\ntext = \"done\"\n"), "");
        let file = std::fs::read_to_string(bench.path().join("agent.toml")).unwrap();
        let file = file.replacen("[agent]\n", &format!("[agent]\n{name}"), 1);
        bench.write("agent.toml", &file);
        let run = bench.run(&["run", "agent.toml", "--json"]).fails(1, "").json().remove(0);
        let run = run_of(&run);
        let same = bench.run(&["resume", &run, "--reopen"]).fails(1, "auth_failed");
        assert!(!same.err.contains("changed since"), "{}", same.err);

        bench.write("agent.toml", &file.replacen("[agent]", "[agent]\ninstructions = \"x\"", 1));
        let said = "agent.toml was changed since (`agent.instructions`): the run goes on as it was recorded; to go \
                    on with its model and tools:\n";
        let old = bench.run(&["resume", &run, "--reopen"]).fails(1, said);
        let command = offered(&old.err, "was changed since");
        assert_eq!(command, ["resume", &run, "--reopen", "--agent", "agent.toml"]);
        bench.run(&command).ok();
        bench.run(&["replay", &run]).ok();
    }
}

/// Spec: D12. The record names a file, and not what is in it.
#[test]
fn mended_instructions_are_offered_where_refused() {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.write("told.md", "Be nice.");
    bench.agent("[[model]]\nerror = { kind = \"auth_failed\" }\n[[model]]\ntext = \"done\"\n", "");
    let file = std::fs::read_to_string(bench.path().join("agent.toml")).unwrap();
    let file = file.replacen("[agent]\n", "[agent]\ninstructions_file = \"told.md\"\n", 1);
    bench.write("agent.toml", &file);
    let run = bench.run(&["run", "agent.toml", "--json"]).fails(1, "").json().remove(0);
    let run = run_of(&run);
    bench.write("told.md", "Be brief.");
    let told = bench.run(&["resume", &run, "--reopen"]).fails(6, "the record is not this agent's");
    let hint = format!(
        "hint: what agent.toml names was changed since; to go on with its model and tools: `backstop resume {run} \
         --reopen --agent agent.toml`"
    );
    assert!(told.err.contains(&hint), "{}", told.err);
    bench.run(&["resume", &run, "--reopen", "--agent", "agent.toml"]).ok();
}
