//! Output of `backstop worker` during an outage of its database.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use backstop_testkit::PostgresServer;
use serde_json::Value;

use crate::bench::Bench;
use crate::terminal::kill;
use crate::worker::until;

/// A proxy on loopback that can stop forwarding with its connections open, as a hanging network does.
struct HangingProxy {
    port: u16,
    is_hung: Arc<AtomicBool>,
}

impl HangingProxy {
    fn start(url: &str) -> Self {
        let (_, target, _) = parts(url);
        let target = target.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let is_hung = Arc::<AtomicBool>::default();
        let hung = Arc::clone(&is_hung);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect(&target).unwrap();
                forward(client.try_clone().unwrap(), server.try_clone().unwrap(), &hung);
                forward(server, client, &hung);
            }
        });
        Self { port, is_hung }
    }

    /// Stops forwarding.
    fn hang(&self) {
        self.is_hung.store(true, Ordering::SeqCst);
    }
}

/// Forwards in one direction. Data that is read while the network hangs never reaches the other side.
fn forward(mut from: TcpStream, mut to: TcpStream, is_hung: &Arc<AtomicBool>) {
    let is_hung = Arc::clone(is_hung);
    std::thread::spawn(move || {
        let mut buffer = [0; 16 * 1024];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            if is_hung.load(Ordering::SeqCst) {
                // The connections stay open until the end of the test.
                std::thread::park();
            }
            if to.write_all(&buffer[..read]).is_err() {
                break;
            }
        }
        if is_hung.load(Ordering::SeqCst) {
            std::thread::park();
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}

/// Spec: J2w. A worker that waits for work, and one with a tool at work, end on SIGTERM though their server does not
/// answer any more: the one without a tool needs no time to drain.
#[test]
fn hung_network_keeps_no_worker_alive() {
    let Some(server) = PostgresServer::start() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (is_busy, drain) in [(false, "3600"), (true, "1")] {
        let url = runtime.block_on(server.database());
        let proxy = HangingProxy::start(&url);
        let (user, _, database) = parts(&url);
        let through = format!("{user}@127.0.0.1:{}/{database}", proxy.port);
        let bench = Bench::new().with("BACKSTOP_STORE", &url);
        bench.agent(
            "[[model]]\ntool_calls = [{ id = \"a\", name = \"wait\" }]\n[[model]]\ntext = \"ok\"\n",
            "[agent.policy]\ngrant = [\"process:spawn\"]\n[[tools]]\nkind = \"command\"\nname = \"wait\"\n\
             description = \"d\"\ncommand = [\"sh\", \"-c\", \"touch begun; exec sleep 1000\"]\n",
        );
        let mut command =
            bench.command(&["worker", "agent.toml", "--drain", drain, "--store", &through]);
        let mut worker = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = lines(worker.stderr.take().unwrap());
        said(&lines, "working;");
        if is_busy {
            bench.run(&["enqueue", "agent.toml", "--input", "hi"]).ok();
            until(|| bench.path().join("begun").exists());
        }
        proxy.hang();
        kill("-TERM", worker.id());
        let mut ended = None;
        until(|| {
            ended = worker.try_wait().unwrap();
            ended.is_some()
        });
        assert!(ended.unwrap().code().is_some(), "it ends by itself");
    }
}

/// Splits the URL of a database into the part before the server, its host and port, and the rest.
fn parts(url: &str) -> (&str, &str, &str) {
    let (user, rest) = url.split_once('@').unwrap();
    let (server, database) = rest.split_once('/').unwrap();
    (user, server, database)
}

/// Reads lines as they arrive.
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

/// Waits for a line with these words; returns it.
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
