//! `watch`: behaviours for the runs of other processes.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, Stdio};

use serde_json::Value;

use crate::behaving::{recorded, table};
use crate::bench::{Bench, Ran};

const FAILS: &str = "[[model]]\nerror = { kind = \"auth_failed\" }\n";
const GRANTS: &str = "[agent.policy]\ngrant = [\"process:spawn\"]\n";
const KEEPS: &str = "command = [\"sh\", \"-c\", \"cat >> told\"]";

/// Writes an agent that fails, and a file with a behaviour on its failure.
fn bench(command: &str) -> Bench {
    let bench = Bench::new().with("BACKSTOP_STORE", "sqlite:x.db");
    bench.agent(FAILS, "");
    let agent = std::fs::read_to_string(bench.path().join("agent.toml")).unwrap();
    bench.write("watch.toml", &format!("{agent}{GRANTS}{}", table("tell", "run.failed", command)));
    bench
}

fn fail(bench: &Bench) {
    bench.run(&["run", "agent.toml"]).fails(1, "provider.auth_failed");
}

/// Returns the lines that a command kept of its input.
fn told(bench: &Bench) -> Vec<Value> {
    let told = std::fs::read_to_string(bench.path().join("told")).unwrap_or_default();
    told.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A process that serves, with its output so far.
struct Watcher {
    process: Child,
    lines: BufReader<ChildStderr>,
    said: String,
}

impl Watcher {
    fn start(bench: &Bench, begins: &str) -> Self {
        let mut command = bench.command(&["watch", "watch.toml", "--json"]);
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stderr.take().unwrap());
        let mut watcher = Self { process, lines, said: String::new() };
        watcher.see(begins);
        watcher
    }

    /// Waits for a line.
    fn see(&mut self, text: &str) {
        let from = self.said.len();
        while !self.said[from..].contains(text) {
            assert!(self.lines.read_line(&mut self.said).unwrap() > 0, "{text}: {}", self.said);
        }
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.process.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    fn end(mut self, signal: &str) -> Ran {
        self.signal(signal);
        self.lines.read_to_string(&mut self.said).unwrap();
        let mut ran = Ran::of(self.process.wait_with_output().unwrap());
        ran.err = self.said;
        ran
    }
}

/// Spec: X8, X2
#[test]
fn runs_of_other_processes_are_delivered() {
    let bench = bench(KEEPS);
    let mut watcher = Watcher::start(&bench, "serves `tell` from the start: run.failed\n");
    fail(&bench);
    watcher.see(" 5 run.failed ok\n");
    let ran = watcher.end("-TERM").ok();
    let ends = ran.json();
    assert_eq!((ends.len(), &ends[0]["type"]), (1, &"behavior.completed".into()), "{}", ran.out);
    assert_eq!(told(&bench).len(), 1);

    fail(&bench);
    let mut watcher = Watcher::start(&bench, "serves `tell` behind event ");
    watcher.see(" 5 run.failed ok\n");
    watcher.end("-INT").ok();
    assert_eq!(told(&bench).len(), 2, "what was missed is made up for");
}

/// Spec: X2. Effects are made at least once, ends are recorded once.
#[test]
fn killed_delivery_is_made_again() {
    let bench = bench(
        "command = [\"sh\", \"-c\", \"cat >> told; while [ ! -e go ]; do sleep 0.02; done\"]",
    );
    let watcher = Watcher::start(&bench, "serves `tell`");
    fail(&bench);
    while told(&bench).is_empty() {
        std::thread::yield_now();
    }
    assert_eq!(watcher.end("-KILL").code, -1);
    bench.write("go", "");
    let mut watcher = Watcher::start(&bench, "serves `tell`");
    watcher.see(" 5 run.failed ok\n");
    watcher.end("-TERM").ok();
    let told = told(&bench);
    assert_eq!((told.len(), &told[0]), (2, &told[1]));
    let kinds: Vec<String> =
        recorded(&bench, "sub_tell").into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, ["behavior.delivered", "behavior.delivered", "behavior.completed"]);
    bench.run(&["verify", "--all"]).ok();
}

/// Spec: X2. One host at a time has a subscription.
#[test]
fn second_watch_takes_over_from_a_killed() {
    let bench = bench(KEEPS);
    let mut first = Watcher::start(&bench, "serves `tell`");
    let mut second = Watcher::start(&bench, "waits for `tell`: another process serves it\n");
    fail(&bench);
    first.see(" 5 run.failed ok\n");
    assert_eq!(told(&bench).len(), 1);
    let id = format!("tell/{}/5", told(&bench)[0]["run"].as_str().unwrap());
    let again = ["behaviors", "redeliver", &id, "--agent", "watch.toml"];
    let held = bench.run(&again).fails(2, "has a living writer");
    assert!(held.err.contains("stop that `backstop watch`"), "{}", held.err);
    first.end("-KILL");
    second.see(" 5 run.failed ok\n");
    fail(&bench);
    second.see(" 5 run.failed ok\n");
    second.end("-TERM").ok();
    let told = told(&bench);
    assert_eq!(told.len(), 2);
    assert_ne!(told[0]["id"], told[1]["id"]);
    bench.run(&again).ok();
}

/// Spec: X8
#[test]
fn mistakes_of_watch_are_told() {
    let bench = bench(KEEPS);
    let watch = |files: &[&str]| bench.run(&[&["watch"], files].concat());
    watch(&["agent.toml"]).fails(2, "there is no behaviour in agent.toml");
    std::fs::copy(bench.path().join("watch.toml"), bench.path().join("copy.toml")).unwrap();
    watch(&["watch.toml", "copy.toml"])
        .fails(2, "behaviour `tell` stands in watch.toml and in copy.toml");
    watch(&["watch.toml", "--store", "sqlite::memory:"]).fails(2, "a store in memory");
    watch(&["nowhere.toml"]).fails(2, "nowhere.toml");
    let stored = |name: &str| {
        let file = std::fs::read_to_string(bench.path().join("watch.toml")).unwrap();
        let file = file.replace("name = \"tell\"", &format!("name = \"{name}\""));
        bench.write(
            &format!("{name}.toml"),
            &format!("[store]\nurl = \"sqlite:{name}.db\"\n{file}"),
        );
    };
    stored("one");
    stored("two");
    watch(&["one.toml", "two.toml"]).fails(2, "one.toml and two.toml have different stores");
    assert!(!bench.path().join("x.db").exists(), "nothing is made of a mistake");
}
