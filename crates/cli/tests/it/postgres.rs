//! The command with a PostgreSQL store.

use std::process::Stdio;

use backstop_testkit::PostgresServer;

use crate::bench::Bench;
use crate::durable::serves_a_waiting_run;

/// Returns the URL of a new database, unless no server can be had, which is said.
fn database() -> Option<String> {
    let server = PostgresServer::shared()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    Some(runtime.block_on(server.database()))
}

/// Spec: C2, A1, D5, D6, D7, J2
#[test]
fn waiting_run_is_served_by_other_processes() {
    let (Some(one), Some(other)) = (database(), database()) else { return };
    serves_a_waiting_run(&one, &other);
}

/// Spec: D15. The chain of a record is the same wherever it is kept.
#[test]
fn records_move_between_back_ends() {
    let Some(url) = database() else { return };
    let bench = Bench::new();
    bench.agent("[[model]]\ntext = \"hello\"\n", "");
    bench.run(&["run", "agent.toml", "--store", "sqlite:a.db"]).ok();
    bench.run(&["copy", "--from", "sqlite:a.db", "--to", &url]).ok();
    bench.run(&["copy", "--from", &url, "--to", "sqlite:b.db"]).ok();
    let export = |store: &str| bench.run(&["export", "last", "--store", store]).ok().out;
    assert_eq!(export("sqlite:a.db"), export(&url));
    assert_eq!(export("sqlite:a.db"), export("sqlite:b.db"));
    bench.run(&["verify", "--all", "--store", &url]).ok();
}

/// Spec: C3, E10. What is wrong with a database is said, with exit code 5, and no password is.
#[test]
fn an_absent_server_is_a_storage_failure() {
    let bench = Bench::new().with("BACKSTOP_STORE", "postgres://me:hunter22@127.0.0.1:1/agents");
    bench.agent("[[model]]\ntext = \"hello\"\n", "");
    for command in [&["runs"][..], &["run", "agent.toml"], &["errors", "list"]] {
        let ran =
            bench.run(command).fails(5, "cannot reach the PostgreSQL server at `127.0.0.1:1`");
        assert!(ran.err.contains("is the server running") && !ran.err.contains("hunter22"));
    }
    let ran = bench.run(&["doctor"]).fails(1, "");
    assert!(ran.out.contains("cannot reach") && !ran.out.contains("hunter22"), "{}", ran.out);
    let wrong = Bench::new().with("BACKSTOP_STORE", "postgres://me@localhost:many/agents");
    wrong.run(&["runs"]).fails(2, "invalid URL of a PostgreSQL database");
}

/// Spec: W8, J2
#[test]
fn doctor_says_what_the_server_keeps() {
    let Some(url) = database() else { return };
    let bench = Bench::new().with("BACKSTOP_STORE", &url);
    bench.agent("[[model]]\ntext = \"hello\"\n", "");
    let before = bench.run(&["doctor"]).ok();
    assert!(before.out.contains("is made by the first run"), "{}", before.out);
    bench.run(&["run", "agent.toml"]).ok();
    let after = bench.run(&["doctor"]).ok().out;
    assert!(after.contains("synchronous_commit is on"), "{after}");
    assert!(after.contains("each connection has a process of the server"), "{after}");
}

/// Spec: D5, J2. Killed in the middle of a tool, a run is gone on with at once, and the tool is not run again.
#[test]
fn a_killed_run_is_gone_on_with() {
    let Some(url) = database() else { return };
    let bench = Bench::new().with("BACKSTOP_STORE", &url);
    let script = "[[model]]\ntool_calls = [{ id = \"c1\", name = \"work\", arguments = {} }]\n\
        [[model]]\ntext = \"it was interrupted\"\n";
    let tool = "[agent.policy]\ngrant = [\"process:spawn\"]\n[[tools]]\nkind = \"command\"\nname = \"work\"\n\
        description = \"d\"\ncommand = [\"sh\", \"-c\", \"echo ran >> runs.txt; sleep 60\"]\n";
    bench.agent(script, tool);
    let mut command = bench.command(&["run", "agent.toml"]);
    let mut run = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let noted = bench.path().join("runs.txt");
    for _ in 0..3_000 {
        if noted.exists() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    run.kill().unwrap();
    run.wait().unwrap();
    let resumed = bench.run(&["resume", "last", "--json"]).ok().json().remove(0);
    assert_eq!(resumed["output"], "it was interrupted");
    let answers = bench.run(&["trace", "last"]).ok().out;
    assert!(answers.contains("tool.interrupted"), "{answers}");
    assert_eq!(std::fs::read_to_string(noted).unwrap(), "ran\n");
}
