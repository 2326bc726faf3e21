//! Runs whose process died: their list, and their common resumption.

use std::process::{Child, Stdio};
use std::time::Duration;

use crate::bench::Bench;
use crate::postgres::database;

const CALLS: &str =
    "[[model]]\ntool_calls = [{ id = \"c1\", name = \"t\" }]\n[[model]]\ntext = \"done\"\n";
const TOOL: &str = "[agent.policy]\ngrant = [\"process:spawn\"]\n[[tools]]\nkind = \"command\"\n\
    name = \"t\"\ndescription = \"d\"\nidempotent = true\n\
    command = [\"sh\", \"-c\", \"touch begun; test -e free || sleep 300\"]\n";

/// Starts a run whose tool runs until a file named `free` exists.
fn start(bench: &Bench, session: &str) -> Child {
    let _ = std::fs::remove_file(bench.path().join("begun"));
    let mut command = bench.command(&["run", "agent.toml", "--session", session]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for_begun(bench);
    child
}

fn wait_for_begun(bench: &Bench) {
    for _ in 0..12_000 {
        if bench.path().join("begun").exists() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("the tool did not begin");
}

fn die(mut child: Child) {
    // SIGKILL on Unix.
    child.kill().unwrap();
    child.wait().unwrap();
}

fn sessions(bench: &Bench, args: &[&str]) -> Vec<(String, String)> {
    let listed = bench.run(&[&["runs", "--json"], args].concat()).ok().json();
    let text = |run: &serde_json::Value, key: &str| run[key].as_str().unwrap().to_owned();
    listed.iter().map(|run| (text(run, "session"), text(run, "state"))).collect()
}

fn bench(store: &str) -> Bench {
    let bench = Bench::new().with("BACKSTOP_STORE", store);
    bench.agent(CALLS, TOOL);
    bench
}

fn pair(session: &str, state: &str) -> (String, String) {
    (session.to_owned(), state.to_owned())
}

/// Spec: D4, D5. The next run of a session ends a run whose process died, and says so.
#[test]
fn run_that_a_session_ended_is_told() {
    let bench = bench("sqlite:x.db");
    bench.agent(CALLS, &TOOL.replace("idempotent = true\n", ""));
    die(start(&bench, "s"));
    let dead = bench.run(&["runs", "--json"]).ok().json().remove(0);
    let dead = dead["run"].as_str().unwrap();
    bench.write("free", "");
    let next = bench.run(&["run", "agent.toml", "--session", "s"]).ok();
    assert!(
        next.err.contains(&format!("{dead}, was interrupted and is ended now")),
        "{}",
        next.err
    );
    let again = bench.run(&["run", "agent.toml", "--session", "s"]).ok();
    assert!(!again.err.contains("interrupted"), "{}", again.err);
    let settled = bench.run(&["resolve", dead, "c1", "--did-not", "--by", "ops"]).ok();
    assert!(settled.err.contains("continued its session"), "{}", settled.err);
    assert!(!settled.err.contains("--reopen"), "{}", settled.err);
}

/// Spec: D4, D15
#[test]
fn runs_of_dead_processes_are_resumed_together() {
    resumes_together("sqlite:x.db");
}

/// Spec: D4, D15, J2
#[test]
fn interrupted_runs_of_a_server_are_resumed() {
    let Some(url) = database() else { return };
    resumes_together(&url);
}

fn resumes_together(store: &str) {
    let bench = bench(store);
    let living = start(&bench, "s-1");
    assert_eq!(sessions(&bench, &[]), [pair("s-1", "running")]);
    assert!(bench.run(&["doctor"]).out.contains("no run is interrupted"));
    assert_eq!(sessions(&bench, &["--stuck"]), []);
    die(start(&bench, "s-2"));
    die(start(&bench, "s-3"));
    let (second, third) = (pair("s-2", "interrupted"), pair("s-3", "interrupted"));
    let all = [third.clone(), second.clone(), pair("s-1", "running")];
    assert_eq!(sessions(&bench, &[]), all);
    assert_eq!(sessions(&bench, &["--state", "running"]), [pair("s-1", "running")]);
    let newest = sessions(&bench, &["--state", "interrupted", "--limit", "1"]);
    assert_eq!(newest, std::slice::from_ref(&third));
    assert_eq!(sessions(&bench, &["--stuck"]), [second, third]);
    let table = bench.run(&["runs", "--state", "interrupted"]).ok().out;
    assert_eq!(table.matches("interrupted").count(), 2, "{table}");
    let doctor = bench.run(&["doctor"]);
    assert!(doctor.out.contains("2 runs are interrupted"), "{}", doctor.out);
    assert_eq!(doctor.code, 1);
    bench.write("free", "");
    let resumed = bench.run(&["resume", "--all", "--json"]).ok().json();
    let ended: Vec<_> = resumed.iter().map(|run| (&run["session"], &run["outcome"])).collect();
    assert_eq!(ended, [(&"s-2".into(), &"completed".into()), (&"s-3".into(), &"completed".into())]);
    assert_eq!(sessions(&bench, &["--state", "interrupted"]), []);
    let none = bench.run(&["resume", "--all"]).ok();
    assert!(none.err.starts_with("no run is interrupted in "), "{}", none.err);
    die(living);
}

/// Spec: C3, D4
#[test]
fn resume_of_all_exits_as_the_worst() {
    let bench = bench("sqlite:x.db");
    die(start(&bench, "s-1"));
    bench.agent(&CALLS.replace("text = \"done\"", "error = { kind = \"invalid_request\" }"), TOOL);
    die(start(&bench, "s-2"));
    bench.write("free", "");
    let resumed = bench.run(&["resume", "--all", "--json"]);
    assert_eq!(resumed.code, 1, "{}", resumed.err);
    assert_eq!(resumed.json().len(), 2, "{}", resumed.out);
    bench.run(&["resume"]).fails(2, "required arguments were not provided");
    bench.run(&["resume", "last", "--all"]).fails(2, "cannot be used with");
}

/// Spec: D4. A signal between two runs, or while one begins, cancels none that it did not reach.
#[cfg(unix)]
#[test]
fn stopped_resume_of_all_leaves_the_rest() {
    let bench = bench("sqlite:x.db");
    die(start(&bench, "s-1"));
    die(start(&bench, "s-2"));
    std::fs::remove_file(bench.path().join("begun")).unwrap();
    let mut command = bench.command(&["resume", "--all", "--json"]);
    let resuming = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for_begun(&bench);
    crate::terminal::kill("-TERM", resuming.id());
    let ran = crate::bench::Ran::of(resuming.wait_with_output().unwrap());
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(ran.err.contains("1 more were not resumed"), "{}", ran.err);
    assert_eq!(ran.json()[0]["outcome"], "cancelled");
    assert_eq!(sessions(&bench, &["--state", "interrupted"]), [pair("s-2", "interrupted")]);
    let listed = bench.run(&["sessions", "list", "--json"]).ok().json();
    assert_eq!(listed[0]["state"], "interrupted");
}
