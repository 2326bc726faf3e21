//! Actions of other processes on a run: they stop it, and check its record.

use std::process::{Command, Stdio};

use crate::bench::{Bench, Ran};
use crate::running::{ASKS, REFUNDS};

const STORE: [&str; 2] = ["--store", "sqlite:x.db"];

fn run_of(bench: &Bench) -> String {
    let runs = bench.run(&["runs", "--json", STORE[0], STORE[1]]).ok().json();
    runs[0]["run"].as_str().unwrap().to_owned()
}

fn slow(bench: &Bench) {
    bench.agent(
        "[[model]]\ntool_calls = [{ id = \"c1\", name = \"slow\" }]\n[[model]]\ntext = \"done\"\n",
        "[store]\nurl = \"sqlite:x.db\"\n[agent.policy]\ngrant = [\"process:spawn\"]\n[[tools]]\nkind = \"command\"\n\
         name = \"slow\"\ndescription = \"d\"\ncommand = [\"sh\", \"-c\", \"touch begun; sleep 300\"]\n",
    );
}

/// Spec: A1, B3
#[test]
fn a_run_of_another_process_is_cancelled() {
    let bench = Bench::new();
    slow(&bench);
    let mut command = bench.command(&["run", "agent.toml", "--json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while !bench.path().join("begun").exists() {
        std::thread::yield_now();
    }
    let run = run_of(&bench);
    bench.run(&["cancel", &run, "--by", "ops", STORE[0], STORE[1]]).ok();
    let ran = Ran::of(child.wait_with_output().unwrap()).fails(3, "");
    assert_eq!(ran.json()[0]["reason"], "run.cancelled");
    let trace = bench.run(&["trace", &run, "--json", STORE[0], STORE[1]]).ok().json();
    let signal = trace.iter().find(|event| event["type"] == "signal.received").unwrap();
    assert_eq!(signal["data"]["data"]["by"], "ops", "who did it is recorded");
    bench.run(&["replay", &run, STORE[0], STORE[1]]).ok();
}

/// Spec: A1, D5
#[test]
fn run_without_owner_is_ended_by_the_sender() {
    let bench = Bench::new();
    slow(&bench);
    let mut command = bench.command(&["run", "agent.toml"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while !bench.path().join("begun").exists() {
        std::thread::yield_now();
    }
    let killed = Command::new("kill").args(["-KILL", &child.id().to_string()]).status();
    assert!(killed.unwrap().success());
    child.wait().unwrap();
    let run = run_of(&bench);
    bench.run(&["cancel", " ", STORE[0], STORE[1]]).fails(2, "it must not be empty");
    bench.run(&["cancel", &run, "--by", ""]).fails(2, "it must not be empty");
    bench.run(&["cancel", &run, STORE[0], STORE[1]]).ok();
    let known = bench.run(&["runs", "--json", STORE[0], STORE[1]]).ok().json().remove(0);
    assert_eq!((&known["state"], &known["reason"]), (&"finished".into(), &"run.cancelled".into()));
    bench.run(&["replay", &run, STORE[0], STORE[1]]).ok();
    bench.run(&["cancel", &run, STORE[0], STORE[1]]).fails(2, "is over");
    bench.run(&["cancel", "run_none", STORE[0], STORE[1]]).fails(2, "run_none");
}

/// Spec: A1
#[test]
fn cancelled_run_closes_its_approval() {
    let bench = Bench::new();
    bench.agent(REFUNDS, ASKS);
    bench.run(&["run", "agent.toml"]).fails(4, "");
    let run = run_of(&bench);
    bench.run(&["cancel", &run, STORE[0], STORE[1]]).ok();
    assert!(bench.run(&["approvals", "--json", STORE[0], STORE[1]]).ok().json().is_empty());
    bench.run(&["replay", &run, STORE[0], STORE[1]]).ok();
}

/// Spec: D13, C3
#[test]
fn changed_record_fails_verification() {
    let bench = Bench::new();
    bench.agent("[[model]]\ntext = \"done\"\n", "[store]\nurl = \"sqlite:x.db\"\n");
    bench.run(&["run", "agent.toml"]).ok();
    let run = run_of(&bench);
    let sound = bench.run(&["verify", "--json", STORE[0], STORE[1]]).ok().json();
    assert_eq!((&sound[0]["ok"], &sound[0]["run"]), (&true.into(), &run.as_str().into()));
    bench.run(&["verify", &run, STORE[0], STORE[1]]).ok();
    bench.run(&["verify", "run_none", STORE[0], STORE[1]]).fails(2, "run_none");
    let file = bench.path().join("x.db");
    let bytes = std::fs::read(&file).unwrap();
    for (from, to) in [
        ("\"state\":\"finished\"", "\"state\":\"failed\"  "),
        ("\"text\":\"done\"", "\"text\":\"dune\""),
    ] {
        let (from, to) = (from.as_bytes(), to.as_bytes());
        let at = bytes.windows(from.len()).rposition(|window| window == from).unwrap();
        let mut changed = bytes.clone();
        changed[at..at + from.len()].copy_from_slice(to);
        std::fs::write(&file, changed).unwrap();
        let found = bench.run(&["verify", "--all", "--json", STORE[0], STORE[1]]);
        assert_eq!(found.code, 6, "{}{}", found.out, found.err);
        assert_eq!(found.json()[0]["code"], "log.tampered");
    }
}

/// Spec: C2
#[test]
fn a_row_that_cannot_be_read_is_shown() {
    let bench = Bench::new();
    bench.agent("[[model]]\ntext = \"done\"\n", "[store]\nurl = \"sqlite:x.db\"\n");
    bench.run(&["run", "agent.toml"]).ok();
    let run = run_of(&bench);
    let file = bench.path().join("x.db");
    let mut bytes = std::fs::read(&file).unwrap();
    let from = b"\"state\":\"finished\"";
    let at = bytes.windows(from.len()).rposition(|window| window == from).unwrap();
    bytes[at..at + 7].copy_from_slice(b"\"state\"");
    bytes[at + 7] = b';';
    std::fs::write(&file, bytes).unwrap();
    let shown = bench.run(&["runs", "--json", STORE[0], STORE[1]]).ok().json().remove(0);
    assert_eq!((&shown["run"], &shown["state"]), (&run.as_str().into(), &"unreadable".into()));
    assert_eq!(shown["reason"], "log.unreadable");
}
