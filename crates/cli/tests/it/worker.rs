//! Workers and the queue of a PostgreSQL store.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::bench::Bench;
use crate::postgres::database;

/// A worker in a process of its own.
struct Worker(Child);

impl Worker {
    fn start(bench: &Bench, args: &[&str]) -> Self {
        let mut command = bench.command(&[&["worker", "agent.toml"], args].concat());
        Self(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Tells it to stop; returns what it printed.
    fn stop(mut self) -> (String, String) {
        let id = self.0.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        let status = self.0.wait().unwrap();
        let read = |from: Option<&mut dyn std::io::Read>| {
            let mut text = String::new();
            from.unwrap().read_to_string(&mut text).unwrap();
            text
        };
        let out = read(self.0.stdout.as_mut().map(|it| it as _));
        let err = read(self.0.stderr.as_mut().map(|it| it as _));
        assert_eq!(status.code(), Some(0), "{out}\n{err}");
        (out, err)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn until(is_so: impl Fn() -> bool) {
    let mut looks = 0;
    while !is_so() {
        looks += 1;
        assert!(looks < 600, "it takes too long");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Spec: J2w, C2
#[test]
fn queued_runs_are_worked_on() {
    let Some(url) = database() else { return };
    let bench = Bench::new().with("BACKSTOP_STORE", &url);
    bench.agent("[[model]]\ntext = \"hello\"\n", "");
    let run = bench.run(&["enqueue", "agent.toml", "--input", "hi"]).ok().out.trim().to_owned();
    let keyed = ["enqueue", "agent.toml", "--input", "hi", "--key", "k", "--json"];
    let first: Value = serde_json::from_str(&bench.run(&keyed).ok().out).unwrap();
    assert_eq!((&first["queue"], &first["key"]), (&Value::from("default"), &Value::from("k")));
    let again = bench.run(&keyed).ok();
    assert_eq!(serde_json::from_str::<Value>(&again.out).unwrap(), first);
    assert!(again.err.contains("was queued before"), "{}", again.err);
    let other = ["enqueue", "agent.toml", "--input", "other", "--key", "k"];
    bench.run(&other).fails(2, "stands for another input");
    let late = ["enqueue", "agent.toml", "--input", "hi", "--not-before", "2h"];
    let late = bench.run(&late).ok().out.trim().to_owned();
    let listed = bench.run(&["queue", "list"]).ok().out;
    assert!(listed.contains(&run) && listed.contains("queued until "), "{listed}");

    let worker = Worker::start(&bench, &["--json"]);
    let ended = || bench.run(&["runs", "--json"]).ok().out.matches("\"finished\"").count();
    until(|| ended() == 2);
    let (out, _) = worker.stop();
    let reports: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |report: &str| reports.iter().filter(|it| it["report"] == report).count();
    assert_eq!((of("begun"), of("left")), (2, 2), "{out}");
    let trace = bench.run(&["trace", &run]).ok().out;
    assert!(trace.contains("hello"), "{trace}");

    bench.run(&["queue", "cancel", &run]).fails(2, "no queued run is called");
    let cancelled = bench.run(&["queue", "cancel", &late]).ok();
    assert!(cancelled.err.contains("was taken out"), "{}", cancelled.err);
    assert!(bench.run(&["queue", "list"]).ok().err.contains("nothing is queued"));
}

/// Spec: J2w. Another definition of the agent does not go on with a run; asked to, it does.
#[test]
fn stranded_run_is_named_and_adopted() {
    let Some(url) = database() else { return };
    let bench = Bench::new().with("BACKSTOP_STORE", &url);
    let tool = |limit: u32| {
        format!(
            "[agent.limits]\nmax_iterations = {limit}\n[agent.policy]\ngrant = [\"process:spawn\"]\n[[tools]]\n\
             kind = \"command\"\nname = \"work\"\ndescription = \"d\"\n\
             command = [\"sh\", \"-c\", \"echo ran >> runs.txt; sleep 60\"]\n"
        )
    };
    let script = "[[model]]\ntool_calls = [{ id = \"c1\", name = \"work\", arguments = {} }]\n\
        [[model]]\ntext = \"it was interrupted\"\n";
    bench.agent(script, &tool(5));
    let run = bench.run(&["enqueue", "agent.toml", "--input", "hi"]).ok().out.trim().to_owned();
    let worker = Worker::start(&bench, &["--drain", "0"]);
    until(|| bench.path().join("runs.txt").exists());
    let (_, err) = worker.stop();
    assert!(err.contains("tools were still open"), "{err}");

    bench.agent(script, &tool(6));
    let worker = Worker::start(&bench, &[]);
    let stranded = || bench.run(&["queue", "list"]).ok().err.contains("is stranded");
    until(stranded);
    worker.stop();
    let worker = Worker::start(&bench, &["--adopt"]);
    until(|| bench.run(&["runs"]).ok().out.contains("finished"));
    let (_, err) = worker.stop();
    assert!(err.contains(&format!("{run} gone on with (agent)")), "{err}");
    let ran = std::fs::read_to_string(bench.path().join("runs.txt")).unwrap();
    assert_eq!(ran.lines().count(), 1, "the tool is not run again");
}

/// Spec: J2w, C3
#[test]
fn worker_says_what_it_lacks() {
    let bench = Bench::new();
    bench.agent("[[model]]\ntext = \"hello\"\n", "");
    let store = ["--store", "sqlite:a.db"];
    bench.run(&[&["worker", "agent.toml"], &store[..]].concat()).fails(2, "has no queue");
    bench.run(&[&["queue", "list"], &store[..]].concat()).fails(2, "has no queue");
    let asked = ["enqueue", "agent.toml", "--input", "hi"];
    bench.run(&[&asked[..], &store].concat()).fails(2, "--store postgres://");
    let absent = ["--store", "postgres://me@127.0.0.1:1/agents"];
    bench.run(&[&asked[..], &absent].concat()).fails(5, "cannot reach the PostgreSQL server");
    bench.run(&["worker", "agent.toml", "--queue", "mail=0"]).fails(2, "from 1 on");
    bench.run(&[&asked[..], &["--not-before", "soon"]].concat()).fails(2, "is no moment");
}
