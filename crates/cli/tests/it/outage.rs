//! What `backstop worker` says while its database is away.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use backstop_testkit::PostgresServer;
use serde_json::Value;

use crate::bench::Bench;
use crate::worker::until;

/// Reads lines as they come.
fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    lines
}

/// Waits for a line that has these words; returns it.
fn said(lines: &Receiver<String>, words: &str) -> String {
    loop {
        let line = lines.recv_timeout(Duration::from_secs(60)).expect(words);
        if line.contains(words) {
            return line;
        }
    }
}

/// Spec: J2w, W8. It says so at once, long before its runs are let go, with `--quiet` too.
#[test]
fn worker_says_that_its_database_is_away() {
    let Some(server) = PostgresServer::start() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let url = runtime.block_on(server.database());
    let bench = Bench::new().with("BACKSTOP_STORE", &url);
    bench.agent("[[model]]\ntext = \"hello\"\n", "");
    let start = |args: &[&str]| {
        let mut command = bench.command(&[&["worker", "agent.toml"], args].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut plain = start(&["--quiet", "--queue", "one"]);
    let mut as_json = start(&["--json", "--queue", "two"]);
    let said_plain = lines(plain.stderr.take().unwrap());
    let reports = lines(as_json.stdout.take().unwrap());
    for queue in ["one", "two"] {
        bench.run(&["enqueue", "agent.toml", "--input", "hi", "--queue", queue]).ok();
    }
    until(|| bench.run(&["runs", "--state", "finished", "--json"]).ok().json().len() == 2);

    server.kill();
    let away = said(&said_plain, "the database is away");
    assert!(away.contains("store.failed: log cannot be reached: "), "{away}");
    let away: Value = serde_json::from_str(&said(&reports, "database_away")).unwrap();
    assert_eq!((&away["report"], &away["code"]), (&"database_away".into(), &"store.failed".into()));
    server.start_again();
    said(&said_plain, "the database is back after ");
    let back: Value = serde_json::from_str(&said(&reports, "database_back")).unwrap();
    assert!(back["report"] == "database_back" && back["after_ms"].is_u64(), "{back}");
    for worker in [&mut plain, &mut as_json] {
        worker.kill().unwrap();
        worker.wait().unwrap();
    }
}
