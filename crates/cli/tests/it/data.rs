//! Approvals that ask for data, decided from another process and at a terminal.

use std::process::Stdio;

use crate::bench::Bench;
use crate::running::{ASKS, REFUNDS};

const SCHEMA: &str = "approval_schema = { type = \"object\", properties = { \
    gift = { type = \"boolean\" }, note = { type = \"string\" } }, required = [\"note\"] }\n";

/// A bench whose tool returns the data that it gets.
fn bench() -> Bench {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    let shows = "[\"sh\", \"-c\", \"printf %s \\\"$BACKSTOP_APPROVAL_DATA\\\"\"]";
    let asks = ASKS.replace("[\"echo\", \"refunded\"]", shows);
    bench.agent(REFUNDS, &format!("{asks}{SCHEMA}"));
    bench
}

/// A bench with a run that waits for data, with the ids.
fn waiting() -> (Bench, String, String) {
    let bench = bench();
    let waits = bench.run(&["run", "agent.toml"]).fails(4, "waiting for approval: apr_");
    assert!(waits.err.contains("asks for data:"), "{}", waits.err);
    assert!(waits.err.contains("--by NAME --data JSON"), "{}", waits.err);
    let open = bench.run(&["approvals", "--json"]).ok().json().remove(0);
    assert_eq!(open["schema"]["required"][0], "note");
    let text = |key: &str| open[key].as_str().unwrap().to_owned();
    (bench, text("run"), text("id"))
}

/// Spec: A3, C3. The run is in SQLite, and each command is a process of its own.
#[test]
fn data_is_given_from_another_process() {
    let (bench, run, id) = waiting();
    let listed = bench.run(&["approvals"]).ok();
    assert!(listed.out.contains("asks for data:") && listed.out.contains("note"), "{}", listed.out);
    let approve = |data: &[&str]| bench.run(&[&["approve", &id, "--by", "ops"], data].concat());
    let misfit = "the data does not fit what the approval asks for";
    approve(&[]).fails(2, misfit);
    approve(&["--data", "{"]).fails(2, "it is no JSON");
    let refused = approve(&["--data", "{\"note\": 7}"]).fails(2, "note must be a string");
    assert!(refused.err.contains("hint: give data that fits"), "{}", refused.err);
    approve(&["--data", "@missing.json"]).fails(2, "missing.json");
    bench.write("data.json", "{\"note\": \"sorry\"}\n");
    let approved = approve(&["--data", "@data.json", "--json"]).ok().json().remove(0);
    assert_eq!(
        (&approved["verdict"], &approved["data"]["note"]),
        (&"approve".into(), &"sorry".into())
    );
    approve(&["--data", "{\"note\": \"again\"}"]).fails(2, "no open approval");
    let report = bench.run(&["resume", &run, "--json"]).ok().json().remove(0);
    let events = report["events"].as_array().unwrap();
    let of = |kind: &str| &events.iter().find(|event| event["type"] == kind).unwrap()["data"];
    assert_eq!(of("approval.requested")["schema"]["required"][0], "note");
    assert_eq!(of("approval.granted")["data"]["note"], "sorry");
    assert_eq!(of("tool.responded")["output"]["note"], "sorry", "what the program saw");
    bench.run(&["replay", &run]).ok();
    bench.run(&["verify", &run]).ok();
}

/// Spec: A3
#[test]
fn data_comes_from_standard_input() {
    let (bench, run, id) = waiting();
    bench.write("data.json", "{\"note\": \"piped\"}");
    let piped = std::fs::File::open(bench.path().join("data.json")).unwrap();
    let args = ["approve", &id, "--by", "ops", "--data", "-"];
    let output = bench.command(&args).stdin(piped).stdout(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let resumed = bench.run(&["resume", &run, "--json"]).ok().out;
    assert!(resumed.contains("piped"), "{resumed}");
}

/// Spec: A3. What nothing asks for is refused, of a call and in a file.
#[test]
fn unasked_data_is_refused() {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.agent(REFUNDS, ASKS);
    bench.run(&["run", "agent.toml"]).fails(4, "waiting for approval: apr_");
    let open = bench.run(&["approvals", "--json"]).ok().json().remove(0);
    assert!(open.get("schema").is_none(), "{open}");
    let args = ["approve", "last", "--by", "ops", "--data", "{}"];
    bench.run(&args).fails(2, "the decision has data that nothing asks for");
    bench.agent(REFUNDS, &format!("{}{SCHEMA}", ASKS.replace("approval = true", "")));
    let checked = bench.run(&["check", "agent.toml"]).fails(2, "mistake");
    assert!(checked.out.contains("`approval_schema`"), "{}", checked.out);
}

/// Spec: A3, A1
#[test]
fn a_person_at_the_terminal_fills_fields() {
    let bench = bench();
    let terminal = bench.at_terminal("", &["run", "agent.toml"]);
    terminal.wait_for("run it? [y]es, [n]o, [l]ater: ", 1);
    terminal.type_in("y\nperhaps\n\n\nsorry\n");
    let (code, screen) = terminal.end();
    assert_eq!(code, 0, "{screen}");
    for shown in ["gift (y/n, optional)", "note (text, required)", "it is required"] {
        assert!(screen.contains(shown), "{shown}: {screen}");
    }
    let run = bench.run(&["runs", "--json"]).ok().json().remove(0);
    let trace = bench.run(&["trace", run["run"].as_str().unwrap(), "--json"]).ok().out;
    assert!(trace.contains("\"data\":{\"note\":\"sorry\"}"), "{trace}");
}

/// Spec: A3
#[test]
fn approve_at_the_terminal_asks_for_data() {
    let (bench, run, id) = waiting();
    let prompt = "approve it? [y]es, [n]o: ";
    for (typed, code) in [("n\n", 4), ("y\n\u{4}", 4), ("y\nyes\nsorry\n", 0)] {
        let terminal = bench.at_terminal("", &["approve", &id, "--by", "ada"]);
        terminal.wait_for(prompt, 1);
        terminal.type_in(typed);
        let (ended, screen) = terminal.end();
        assert_eq!(ended, code, "{screen}");
    }
    let resumed = bench.run(&["resume", &run, "--json"]).ok().out;
    assert!(resumed.contains("{\"gift\":true,\"note\":\"sorry\"}"), "{resumed}");
}
