//! Workers and the queue of a PostgreSQL store.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::bench::Bench;
use crate::postgres::{database, execute_in};
use crate::running::{ASKS, REFUNDS};
use crate::serving::Served;

/// A worker in a process of its own.
struct Worker(Child);

impl Worker {
    fn start(bench: &Bench, args: &[&str]) -> Self {
        let mut command = bench.command(&[&["worker", "agent.toml"], args].concat());
        Self(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Stops the worker; returns its output.
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

pub(crate) fn until(mut is_so: impl FnMut() -> bool) {
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
    for command in [&["trace"][..], &["cancel", "--by", "ada"], &["resume"]] {
        let refused = bench.run(&[command, &[&run]].concat());
        refused.fails(2, &format!("`{run}` is queued: no worker has started it"));
    }

    let worker = Worker::start(&bench, &["--json"]);
    let ended = || bench.run(&["runs", "--json"]).ok().out.matches("\"finished\"").count();
    until(|| ended() == 2);
    let (out, err) = worker.stop();
    let connections = "each worker, and each other process, uses up to 12 connections; \
         a pooler in session mode holds them for as long as the process lives, so its pool needs 12 for each";
    assert!(err.contains(connections), "{err}");
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

/// Spec: S9. What one agent of the worker holds is a secret for the others too, whichever is named first.
#[test]
fn agents_of_one_worker_share_its_secrets() {
    const KEY: &str = "held-secret-key-of-b";
    for files in [["agent.toml", "b.toml"], ["b.toml", "agent.toml"]] {
        let Some(url) = database() else { return };
        let bench = Bench::new().with("BACKSTOP_STORE", &url).with("B_CREDENTIAL", KEY);
        bench.agent(
            "[[model]]\ntool_calls = [{ id = \"c1\", name = \"t\" }]\n[[model]]\ntext = \"done\"\n",
            "[agent.policy]\ngrant = [\"process:spawn\"]\n[[tools]]\nkind = \"command\"\nname = \"t\"\n\
             description = \"d\"\ncommand = [\"sh\", \"-c\", \"echo key $B_CREDENTIAL\"]\n\
             env = [\"PATH\", \"B_CREDENTIAL\"]\n",
        );
        let model = "[model]\nprovider = \"script\"\nscript = \"script.toml\"\napi_key_env = \"B_CREDENTIAL\"\n";
        bench.write("b.toml", &format!("[agent]\nname = \"b\"\n{model}"));
        bench.run(&["enqueue", "agent.toml", "--input", "go"]).ok();
        let mut command = bench.command(&["worker", files[0], files[1]]);
        let worker = Worker(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        until(|| bench.run(&["runs"]).ok().out.contains("finished"));
        worker.stop();
        let trace = bench.run(&["trace", "last", "--json"]).ok().out;
        assert!(trace.contains("key [redacted]") && !trace.contains(KEY), "{trace}");
    }
}

/// Spec: J2w. Another definition of the agent does not go on with a run; asked to, it does, and the record says so.
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
    let events = bench.run(&["export", &run]).ok().json();
    let adopted = events.iter().find(|event| event["type"] == "run.resumed").unwrap();
    let limits = &adopted["data"]["agent"]["definition"]["limits"];
    assert_eq!(limits["max_iterations"], 6, "{adopted}");
    bench.run(&["replay", &run]).ok();
    bench.run(&["replay", &run, "--agent", "agent.toml"]).ok();
}

/// Spec: J2w. What a killed worker left is stranded once its lease has ended, which the next one says.
#[test]
fn killed_workers_runs_are_told_as_stranded() {
    let Some(url) = database() else { return };
    let bench = Bench::new().with("BACKSTOP_STORE", &url);
    let agent = |limit: u32| {
        let asks = ASKS.replace("[store]\nurl = \"sqlite:x.db\"\n", "");
        bench.agent(REFUNDS, &format!("[agent.limits]\nmax_iterations = {limit}\n{asks}"));
    };
    agent(5);
    let run = bench.run(&["enqueue", "agent.toml", "--input", "hi"]).ok().out.trim().to_owned();
    let mut worker = Worker::start(&bench, &[]);
    until(|| bench.run(&["approvals"]).ok().out.contains("apr_"));
    worker.0.kill().unwrap();
    agent(6);
    let worker = Worker::start(&bench, &[]);
    std::thread::sleep(Duration::from_secs(22));
    let (_, err) = worker.stop();
    assert_eq!(err.matches(&format!("run {run} of `agent` is stranded")).count(), 1, "{err}");
}

/// Returns the findings of `doctor` about workers.
fn workers_in_doctor(bench: &Bench, code: i32) -> Value {
    let mut found = bench.run(&["doctor", "--json"]).fails(code, "").json();
    found.retain(|finding| finding["check"] == "workers");
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

/// Spec: J2w, D15, W8
#[test]
fn stranded_run_is_listed_until_a_worker_comes() {
    let Some(url) = database() else { return };
    let bench = Bench::new().with("BACKSTOP_STORE", &url);
    let agent = |limit: u32| {
        let asks = ASKS.replace("[store]\nurl = \"sqlite:x.db\"\n", "");
        bench.agent(REFUNDS, &format!("[agent.limits]\nmax_iterations = {limit}\n{asks}"));
    };
    let stuck = |more: &[&str]| bench.run(&[&["runs", "--stuck"], more].concat()).ok();
    let is_well = || {
        assert_eq!(stuck(&["--json"]).out, "");
        assert_eq!(workers_in_doctor(&bench, 0)["message"], "no run is stranded");
    };
    agent(5);
    let enqueue = ["enqueue", "agent.toml", "--input", "hi"];
    let run = bench.run(&enqueue).ok().out.trim().to_owned();
    let worker = Worker::start(&bench, &[]);
    until(|| bench.run(&["approvals"]).ok().out.contains("apr_"));
    is_well();
    worker.stop();

    let is_stranded = || {
        let mut listed = stuck(&["--json"]).json();
        assert_eq!(listed.len(), 1, "{listed:?}");
        listed.remove(0)
    };
    let listed = is_stranded();
    let mut keys: Vec<&str> = listed.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    assert_eq!(
        keys.join(" "),
        "agent finished_at labels outcome reason run session since started_at state stuck usage"
    );
    let of = |key: &str| listed[key].as_str().unwrap_or_default();
    assert_eq!((of("run"), of("stuck"), of("state")), (&*run, "stranded", "waiting_approval"));
    let events = bench.run(&["export", &run]).ok();
    assert_eq!(listed["since"], events.json().pop().unwrap()["at"], "since its last event");
    let table = stuck(&[]);
    assert!(table.out.contains(&run) && table.out.contains("stranded"), "{}", table.out);
    assert!(table.err.contains("`backstop worker --adopt`"), "{}", table.err);
    assert!(stuck(&["--agent", "other"]).out.is_empty());
    let finding = workers_in_doctor(&bench, 1);
    assert_eq!(
        finding,
        json!({
            "check": "workers",
            "state": "mend",
            "message": "1 run is stranded (1 of `agent`): no live worker has the agent as it was when the run began",
            "hint": "start a worker with that definition, or one with --adopt; `backstop runs --stuck` lists the runs",
        })
    );

    // There is a worker, but with another definition.
    agent(6);
    let worker = Worker::start(&bench, &[]);
    bench.run(&enqueue).ok();
    until(|| bench.run(&["approvals"]).ok().out.matches("apr_").count() == 2);
    assert_eq!(is_stranded()["run"], run);
    workers_in_doctor(&bench, 1);
    agent(5);
    let same = Worker::start(&bench, &[]);
    until(|| stuck(&[]).out.is_empty());
    is_well();

    for approval in bench.run(&["approvals", "--json"]).ok().json() {
        bench.run(&["approve", approval["id"].as_str().unwrap(), "--by", "ada"]).ok();
    }
    until(|| bench.run(&["runs", "--state", "finished", "--json"]).ok().json().len() == 2);
    worker.stop();
    same.stop();
    is_well();
}

/// Spec: J2w, D15. What a process left is open where there are no workers, and stranded once there are.
#[test]
fn open_run_is_not_stranded_without_workers() {
    let Some(url) = database() else { return };
    let bench = Bench::new().with("BACKSTOP_STORE", &url);
    bench.agent(REFUNDS, &ASKS.replace("[store]\nurl = \"sqlite:x.db\"\n", ""));
    bench.run(&["run", "agent.toml"]).fails(4, "waiting for approval");
    assert_eq!(bench.run(&["runs", "--stuck"]).ok().out, "");
    workers_in_doctor(&bench, 0);
    bench.agent("[[model]]\ntext = \"hello\"\n", "");
    let enqueued = bench.run(&["enqueue", "agent.toml", "--input", "hi"]).ok();
    let worker = Worker::start(&bench, &[]);
    until(|| bench.run(&["trace", enqueued.out.trim()]).out.contains("hello"));
    worker.stop();
    assert_eq!(bench.run(&["runs", "--stuck", "--json"]).ok().json().len(), 1);
    workers_in_doctor(&bench, 1);
}

/// Spec: J2w, Q10. Over MCP, a run that workers refused is begun where it is asked for.
#[test]
fn refused_run_is_begun_over_mcp() {
    let Some(url) = database() else { return };
    let bench = Bench::new().with("BACKSTOP_STORE", &url);
    bench.agent("[[model]]\ntext = \"hello\"\n", "");
    let enqueue = ["enqueue", "agent.toml", "--input", "hi", "--key", "k"];
    let run = bench.run(&enqueue).ok().out.trim().to_owned();
    let keyed = || {
        let mut served = Served::start(&bench);
        let asked = served.call_with_key(json!({"input": "hi"}), "k");
        served.leave();
        asked
    };
    let queued = keyed();
    assert_eq!(queued["structuredContent"], json!({"outcome": "queued", "run": run}));
    execute_in(
        &url,
        r#"UPDATE backstop.queue SET refused = '{"code": "input.invalid", "message": "no"}'"#,
    );
    assert!(bench.run(&["queue", "list"]).ok().out.contains("refused (input.invalid)"));
    let begun = keyed();
    assert_eq!(begun["structuredContent"]["run"], run, "{begun}");
    assert_eq!(begun["content"][0]["text"], "hello", "{begun}");
    assert_eq!(bench.run(&["queue", "list"]).ok().out, "", "it left the queue");
}

/// Spec: J2w, W8. A queue whose name is misspelt holds its runs for ever.
#[test]
fn queue_without_a_worker_is_noted() {
    let Some(url) = database() else { return };
    let bench = Bench::new().with("BACKSTOP_STORE", &url);
    bench.agent("[[model]]\ntext = \"hello\"\n", "");
    bench.write("other.toml", &std::fs::read_to_string(bench.path().join("agent.toml")).unwrap());
    let enqueue = |agent: &str, queue: &str| {
        bench.run(&["enqueue", agent, "--input", "hi", "--queue", queue]).ok().err
    };
    let list = || bench.run(&["queue", "list", "--json"]).ok();
    let queues = |code: i32| {
        let found = bench.run(&["doctor", "--json"]).fails(code, "").json();
        found.into_iter().find(|finding| finding["check"] == "queue").unwrap()
    };
    assert_eq!(enqueue("agent.toml", "mial"), "", "the workers may be started later");
    let unserved = "queue `mial` holds 1 run and no worker takes from it";
    assert_eq!(list().err.trim(), unserved);
    assert_eq!(queues(1)["message"], unserved);

    let worker = Worker::start(&bench, &["--queue", "mail"]);
    let noted = "none of the workers takes from queue `mial`";
    until(|| enqueue("agent.toml", "mial").trim() == noted);
    let of_other = "none of the workers that take from queue `mail` has `other`";
    assert_eq!(enqueue("other.toml", "mail").trim(), of_other);
    let listed = list();
    let of_other = "queue `mail` holds 1 run of `other`, which no worker that takes from it has";
    assert!(
        listed.err.starts_with(of_other) && listed.err.contains("queue `mial` holds "),
        "{}",
        listed.err
    );
    assert!(listed.json().iter().all(|entry| entry["run"].is_string()), "{}", listed.out);

    let other = Worker::start(&bench, &["other.toml", "--queue", "mail", "--queue", "mial"]);
    until(|| list().out.is_empty());
    assert_eq!(queues(0)["state"], "ok");
    worker.stop();
    other.stop();
}

/// Spec: J2w, C3
#[test]
fn agents_of_one_name_are_refused_by_file() {
    let bench = Bench::new();
    bench.agent("[[model]]\ntext = \"hello\"\n", "");
    let named =
        "[agent]\nname = \"agent\"\n[model]\nprovider = \"script\"\nscript = \"script.toml\"\n";
    bench.write("other.toml", named);
    for command in ["worker", "mcp"] {
        let same = bench.run(&[command, "agent.toml", "agent.toml"]);
        same.fails(2, "agent.toml and agent.toml both hold agent `agent`");
        let named = bench.run(&[command, "agent.toml", "other.toml"]);
        named.fails(2, "agent.toml and other.toml both hold agent `agent`");
    }
}

/// Spec: J2w, C3
#[test]
fn worker_says_what_it_lacks() {
    let bench = Bench::new();
    bench.agent("[[model]]\ntext = \"hello\"\n", "");
    let store = ["--store", "sqlite:a.db"];
    let refused = bench.run(&[&["worker", "agent.toml"], &store[..]].concat());
    refused.fails(2, "`sqlite:a.db` has no queue: queue and workers need PostgreSQL");
    bench.run(&[&["queue", "list"], &store[..]].concat()).fails(2, "has no queue");
    let memory = bench.run(&["worker", "agent.toml", "--store", "sqlite::memory:"]);
    let memory = memory.fails(2, "`sqlite::memory:` has no queue");
    assert!(memory.err.contains("--store postgres://"), "{}", memory.err);
    for command in [&["worker"][..], &["enqueue"], &["queue", "list"], &["queue", "cancel"]] {
        let help = bench.run(&[command, &["--help"]].concat()).ok().out;
        assert!(help.contains("postgres://USER@HOST/DATABASE"), "{help}");
        assert!(!help.contains("sqlite:"), "{help}");
    }
    let asked = ["enqueue", "agent.toml", "--input", "hi"];
    bench.run(&[&asked[..], &store].concat()).fails(2, "--store postgres://");
    let absent = ["--store", "postgres://me@127.0.0.1:1/agents"];
    bench.run(&[&asked[..], &absent].concat()).fails(5, "cannot reach the PostgreSQL server");
    bench.run(&["worker", "agent.toml", "--queue", "mail=0"]).fails(2, "from 1 on");
    bench.run(&[&asked[..], &["--not-before", "soon"]].concat()).fails(2, "is no moment");
}
