//! `trace --follow`: events of a running run, from another process.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::bench::{Bench, Ran};
use crate::running::{ASKS, REFUNDS};

const STORE: [&str; 2] = ["--store", "sqlite:x.db"];

fn last_run(bench: &Bench) -> String {
    let runs = bench.run(&["runs", "--json", STORE[0], STORE[1]]).ok().json();
    runs[0]["run"].as_str().unwrap().to_owned()
}

fn trace(bench: &Bench, run: &str, more: &[&str]) -> Ran {
    bench.run(&[&["trace", run, STORE[0], STORE[1]], more].concat())
}

/// A process that follows, with its output so far.
struct Follower {
    process: Child,
    lines: BufReader<ChildStdout>,
    printed: String,
}

impl Follower {
    fn start(bench: &Bench, run: &str, more: &[&str]) -> Self {
        let args = [&["trace", run, "--follow", STORE[0], STORE[1]], more].concat();
        let mut command = bench.command(&args);
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        Self { process, lines, printed: String::new() }
    }

    /// Waits for the line of an event.
    fn see(&mut self, event_type: &str) {
        let from = self.printed.len();
        while !self.printed[from..].contains(event_type) {
            assert!(self.lines.read_line(&mut self.printed).unwrap() > 0, "{}", self.printed);
        }
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.process.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    fn end(mut self) -> Ran {
        self.lines.read_to_string(&mut self.printed).unwrap();
        let mut ran = Ran::of(self.process.wait_with_output().unwrap());
        ran.out = self.printed;
        ran
    }
}

/// Spec: D10, W3
#[test]
fn a_run_of_another_process_is_followed() {
    let bench = Bench::new();
    bench.agent(
        "[[model]]\ntool_calls = [{ id = \"c1\", name = \"slow\" }]\n[[model]]\ntext = \"done\"\n",
        "[store]\nurl = \"sqlite:x.db\"\n[agent.policy]\ngrant = [\"process:spawn\"]\n[[tools]]\nkind = \"command\"\n\
         name = \"slow\"\ndescription = \"d\"\n\
         command = [\"sh\", \"-c\", \"touch begun; while [ ! -e go ]; do sleep 0.02; done\"]\n",
    );
    let mut command = bench.command(&["run", "agent.toml"]);
    let run = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    while !bench.path().join("begun").exists() {
        std::thread::yield_now();
    }
    let id = last_run(&bench);
    let mut followers = [&[][..], &["--json"]].map(|more| Follower::start(&bench, &id, more));
    for follower in &mut followers {
        follower.see("tool.requested");
    }
    bench.write("go", "");
    let [lines, json] = followers.map(|follower| follower.end().ok());
    assert!(run.unwrap().wait().unwrap().success());
    assert_eq!(lines.out, trace(&bench, &id, &[]).ok().out, "the same live and read later");
    assert_eq!(json.out, trace(&bench, &id, &["--json"]).ok().out);
    assert_eq!(json.json().last().unwrap()["type"], "run.finished");
}

/// Spec: D10, A1
#[test]
fn a_waiting_run_is_followed_on() {
    let bench = Bench::new();
    bench.agent(REFUNDS, ASKS);
    bench.run(&["run", "agent.toml"]).fails(4, "");
    let id = last_run(&bench);
    let mut follower = Follower::start(&bench, "last", &[]);
    follower.see("run.waiting");
    bench.run(&["approve", "last", "--by", "ops", STORE[0], STORE[1]]).ok();
    bench.run(&["resume", &id, STORE[0], STORE[1]]).ok();
    let followed = follower.end().ok();
    assert_eq!(followed.out, trace(&bench, &id, &[]).ok().out);
    assert!(followed.out.contains("run.finished"), "{}", followed.out);
}

/// Spec: D10, C3
#[test]
fn a_follower_is_interrupted() {
    let bench = Bench::new();
    bench.agent(REFUNDS, ASKS);
    bench.run(&["run", "agent.toml"]).fails(4, "");
    let files = bench.files();
    let mut follower = Follower::start(&bench, "last", &[]);
    follower.see("run.waiting");
    follower.signal("-INT");
    let ended = follower.end();
    assert_eq!((ended.code, &*ended.err), (130, ""));
    assert_eq!(bench.files(), files, "a reader leaves nothing behind");
}

/// Spec: D10, D1, C3
#[test]
fn a_run_that_is_over_is_verified() {
    let bench = Bench::new();
    bench.agent("[[model]]\ntext = \"done\"\n", "[store]\nurl = \"sqlite:x.db\"\n");
    bench.run(&["run", "agent.toml"]).ok();
    let id = last_run(&bench);
    bench.run(&["redact", &id, "2", STORE[0], STORE[1]]).ok();
    for more in [&[][..], &["--json"]] {
        let whole = trace(&bench, &id, more).ok();
        assert_eq!(trace(&bench, &id, &[&["--follow"], more].concat()).ok().out, whole.out);
    }
    trace(&bench, &id, &["--follow", "--html", "x.html"]).fails(2, "--html");
    trace(&bench, "run_none", &["--follow"]).fails(2, "run_none");
    change(&bench.path().join("x.db"), "\"text\":\"done\"", "\"text\":\"dune\"");
    let changed = trace(&bench, &id, &["--follow"]).fails(6, "its hash does not match");
    assert!(
        changed.out.contains("run.started") && !changed.out.contains("dune"),
        "{}",
        changed.out
    );
}

fn change(file: &Path, from: &str, to: &str) {
    let mut bytes = std::fs::read(file).unwrap();
    let (from, to) = (from.as_bytes(), to.as_bytes());
    let at = bytes.windows(from.len()).rposition(|window| window == from).unwrap();
    bytes[at..at + from.len()].copy_from_slice(to);
    std::fs::write(file, bytes).unwrap();
}

/// Spec: D10, S10
#[test]
fn a_follower_hears_that_its_run_was_deleted() {
    let bench = Bench::new();
    bench.agent(REFUNDS, ASKS);
    bench.run(&["run", "agent.toml"]).fails(4, "");
    let id = last_run(&bench);
    let mut follower = Follower::start(&bench, &id, &[]);
    follower.see("run.waiting");
    // The process is too slow to see the end of the run.
    follower.signal("-STOP");
    bench.run(&["cancel", &id, STORE[0], STORE[1]]).ok();
    bench.run(&["runs", "delete", &id, STORE[0], STORE[1]]).ok();
    follower.signal("-CONT");
    let ended = follower.end().fails(2, &format!("no run `{id}`"));
    assert!(!ended.out.contains("run.finished"), "{}", ended.out);
}
