//! Commands about a run that another living process has.

use std::process::{Child, Stdio};
use std::time::Duration;

use crate::bench::Bench;
use crate::postgres::database;

const CALLS: &str =
    "[[model]]\ntool_calls = [{ id = \"c1\", name = \"t\" }]\n[[model]]\ntext = \"done\"\n";
const TOOL: &str = "[agent.policy]\ngrant = [\"process:spawn\"]\n[[tools]]\nkind = \"command\"\n\
    name = \"t\"\ndescription = \"d\"\ntimeout_ms = 600000\n\
    command = [\"sh\", \"-c\", \"touch begun; until test -e free; do sleep 0.05; done\"]\n";

/// A run whose tool runs in another process until it is let free.
struct Occupied {
    bench: Bench,
    run: String,
    process: Child,
}

impl Occupied {
    fn start(store: &str) -> Self {
        let bench = Bench::new().with("BACKSTOP_STORE", store);
        bench.agent(CALLS, TOOL);
        let mut command = bench.command(&["run", "agent.toml", "--session", "s-1"]);
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while !bench.path().join("begun").exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let runs = bench.run(&["runs", "--json"]).ok().json();
        let run = runs[0]["run"].as_str().unwrap().to_owned();
        Self { bench, run, process }
    }

    fn refuses(&self, args: &[&str]) {
        let ran = self.bench.run(&[args, &["--json"]].concat());
        // A run that does not begin is an object of its own on standard output.
        let refused = if ran.out.is_empty() { &ran.err } else { &ran.out };
        let object: serde_json::Value = serde_json::from_str(refused.trim()).unwrap_or_default();
        let code = object["code"].as_str().or(object["reason"].as_str());
        assert_eq!((ran.code, code), (2, Some("run.open")), "{args:?}: {} {}", ran.out, ran.err);
        let ran = self.bench.run(args).fails(2, "error: ");
        assert!(ran.err.contains("hint: "), "{args:?}: {}", ran.err);
    }

    fn allows(&self, args: &[&str]) {
        self.bench.run(args).ok();
    }
}

fn check(store: &str) {
    let mut occupied = Occupied::start(store);
    let run = occupied.run.clone();
    let run = run.as_str();
    let is_sqlite = store.starts_with("sqlite:");
    for args in [
        &["resume", run][..],
        &["resume", run, "--agent", "agent.toml"],
        &["resume", run, "--accept-lost-tail"],
        &["resume", run, "--reopen"],
        &["resume", run, "--reopen", "--agent", "agent.toml"],
        &["redact", run, "2"],
        &["runs", "delete", run],
        &["runs", "delete", run, "--dry-run"],
        &["sessions", "forget", "s-1"],
        &["sessions", "forget", "s-1", "--dry-run"],
        &["run", "agent.toml", "--session", "s-1"],
    ] {
        occupied.refuses(args);
    }
    for args in [
        &["trace", run][..],
        &["verify", run],
        &["export", run],
        &["replay", run],
        &["runs"],
        &["runs", "prune", "--older-than", "0s"],
        &["errors", "prune"],
        &["resume", "--all"],
        &["copy", "--from", store, "--to", "sqlite:copy.db"],
    ] {
        occupied.allows(args);
    }
    if is_sqlite {
        occupied.allows(&["backup", "backup.db"]);
    }
    occupied.bench.write("free", "");
    assert!(occupied.process.wait().unwrap().success());
    occupied.bench.run(&["verify", run]).ok();
    occupied.bench.run(&["runs", "delete", run]).ok();
}

/// Spec: D8, S10, C3
#[test]
fn occupied_run_is_refused_as_open() {
    check("sqlite:x.db");
}

/// Spec: D8, S10, C3, J2
#[test]
fn occupied_run_of_a_server_is_refused() {
    let Some(url) = database() else { return };
    check(&url);
}
