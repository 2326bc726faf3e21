//! `backstop mcp`: agents as tools, over standard input and output and over HTTP.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use backstop_provider::{ScriptedAnswer, ScriptedToolCall};
use backstop_testkit::ScriptedEndpoint;
use serde_json::{Value, json};

use crate::bench::Bench;

const STORE: &str = "sqlite:x.db";
const MORE: &str = "[agent.policy]\ngrant = [\"process:spawn\"]\n[[tools]]\nkind = \"builtin\"\nname = \"shell\"\n";

/// An agent that runs a command after an approval, and the endpoint of its model.
fn bench() -> (Bench, ScriptedEndpoint) {
    bench_with("echo hi")
}

fn bench_with(command: &str) -> (Bench, ScriptedEndpoint) {
    let shell = ScriptedToolCall::new("c1", "shell", json!({"command": command}));
    let asks = ScriptedAnswer::default().tool_calls([shell]);
    let model = ScriptedEndpoint::openai([asks, ScriptedAnswer::saying("all done")]);
    let bench = Bench::new().with("BACKSTOP_STORE", STORE);
    let table = "[model]\nprovider = \"openai\"\nmodel = \"m\"\nbase_url = ";
    bench.write("agent.toml", &format!("{table}\"{}\"\n{MORE}", model.base_url()));
    (bench, model)
}

/// A running `backstop mcp` that is used line by line.
pub(crate) struct Served {
    child: Child,
    write: ChildStdin,
    read: BufReader<ChildStdout>,
    last: u64,
}

impl Served {
    pub(crate) fn start(bench: &Bench) -> Self {
        Self::of(bench, &["agent.toml"])
    }

    /// Serves the agents of these files.
    fn of(bench: &Bench, files: &[&str]) -> Self {
        let mut command = bench.command(&[&["mcp"], files].concat());
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (write, read) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut served = Self { child, write, read: BufReader::new(read), last: 0 };
        let said = served.ask(
            "initialize",
            json!({
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": { "name": "test", "version": "1" },
            }),
        );
        assert_eq!(said["result"]["serverInfo"]["name"], "backstop");
        served.say(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        served
    }

    fn say(&mut self, message: Value) {
        writeln!(self.write, "{message}").unwrap();
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let id = self.last;
        self.say(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        let mut line = String::new();
        self.read.read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(said["id"], id, "{said}");
        said
    }

    /// Returns the description of the only tool.
    fn description(&mut self) -> String {
        let said = self.ask("tools/list", json!({}));
        said["result"]["tools"][0]["description"].as_str().unwrap().to_owned()
    }

    fn call(&mut self, arguments: Value) -> Value {
        let said = self.ask("tools/call", json!({"name": "agent", "arguments": arguments}));
        said["result"].clone()
    }

    /// Calls with an idempotency key.
    pub(crate) fn call_with_key(&mut self, arguments: Value, key: &str) -> Value {
        let meta = json!({"backstop/idempotency-key": key});
        let call = json!({"name": "agent", "arguments": arguments, "_meta": meta});
        self.ask("tools/call", call)["result"].clone()
    }

    /// Closes the connection as a client does at its end.
    pub(crate) fn leave(mut self) {
        drop(self.write);
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.read, &mut rest).unwrap();
        assert_eq!(rest, "", "nothing but the protocol is on standard output");
        assert!(self.child.wait().unwrap().success());
    }
}

/// Spec: Q10. Clients are shown what the agent is for, and nothing of what it is told.
#[test]
fn clients_are_shown_no_instructions() {
    let agent = "[agent]\nname = \"agent\"\ninstructions = \"The password is swordfish.\"\n";
    let model = "[model]\nprovider = \"script\"\nscript = \"script.toml\"\n";
    for (table, description) in [
        ("", "Runs the agent `agent` on `input`."),
        ("description = \" \"\n", "Runs the agent `agent` on `input`."),
        ("description = \"Sweeps the floor.\"\n", "Sweeps the floor."),
    ] {
        let bench = Bench::new().with("BACKSTOP_STORE", STORE);
        bench.write("script.toml", "[[model]]\ntext = \"done\"\n");
        bench.write("agent.toml", &format!("{agent}{table}{model}"));
        assert_eq!(Served::start(&bench).description(), description);
    }
}

/// Spec: S9. What one agent of the process holds is a secret for the others too, whichever is named first.
#[test]
fn agents_of_one_process_share_its_secrets() {
    const KEY: &str = "held-secret-key-of-b";
    for files in [["agent.toml", "b.toml"], ["b.toml", "agent.toml"]] {
        let bench = Bench::new().with("BACKSTOP_STORE", STORE).with("BKEY", KEY);
        bench.agent(
            "[[model]]\ntool_calls = [{ id = \"c1\", name = \"t\" }]\n[[model]]\ntext = \"done\"\n",
            "[agent.policy]\ngrant = [\"process:spawn\"]\n[[tools]]\nkind = \"command\"\nname = \"t\"\n\
             description = \"d\"\ncommand = [\"sh\", \"-c\", \"echo key $BKEY\"]\nenv = [\"PATH\", \"BKEY\"]\n",
        );
        let model =
            "[model]\nprovider = \"script\"\nscript = \"script.toml\"\napi_key_env = \"BKEY\"\n";
        bench.write("b.toml", &format!("[agent]\nname = \"b\"\n{model}"));
        let mut served = Served::of(&bench, &files);
        served.call(json!({"input": "go"}));
        served.leave();
        let trace = bench.run(&["trace", "last", "--json"]).ok().out;
        assert!(trace.contains("key [redacted]") && !trace.contains(KEY), "{trace}");
    }
}

/// Spec: N3. What a program of one agent may write, no link in it leads a program of another one elsewhere.
#[cfg(target_os = "linux")]
#[test]
fn agents_of_one_process_know_each_others_links() {
    let bench = Bench::new().with("BACKSTOP_STORE", STORE);
    for folder in ["out", "private"] {
        std::fs::create_dir(bench.path().join(folder)).unwrap();
    }
    std::os::unix::fs::symlink("../private", bench.path().join("out/link")).unwrap();
    let tool =
        "[[tools]]\nkind = \"command\"\nname = \"t\"\ndescription = \"d\"\ncommand = [\"true\"]\n";
    let agent = |name: &str, rules: &str| {
        let file = format!(
            "[agent]\nname = \"{name}\"\n[model]\nprovider = \"script\"\nscript = \"script.toml\"\n\
             [agent.policy]\ngrant = [\"process:spawn\"]\n[environment]\n{rules}\n{tool}"
        );
        bench.write(&format!("{name}.toml"), &file);
    };
    bench.write("script.toml", "[[model]]\ntext = \"done\"\n");
    agent("reader", "read = [\"./out/link\"]");
    agent("writer", "write = [\"./out\"]");
    bench.run(&["mcp", "reader.toml"]).ok();
    for files in [["reader.toml", "writer.toml"], ["writer.toml", "reader.toml"]] {
        let refused = bench.run(&["mcp", files[0], files[1]]);
        refused.fails(2, "reader.toml").fails(2, "leads out of");
    }
}

/// Spec: Q10. An agent waits for an approval, is approved elsewhere, and a later call, to another process, has the
/// result.
#[test]
fn approved_run_is_asked_for_later() {
    let (bench, _model) = bench();
    let mut served = Served::start(&bench);
    let tools = served.ask("tools/list", json!({}));
    assert_eq!(tools["result"]["tools"][0]["name"], "agent");
    let said = served.call(json!({"input": "say hi"}));
    let run = said["structuredContent"]["run"].as_str().unwrap().to_owned();
    assert_eq!(said["structuredContent"]["outcome"], "waiting_approval", "{said}");
    served.leave();

    bench.run(&["approve", "last", "--by", "ops"]).ok();
    let mut served = Served::start(&bench);
    let said = served.call(json!({"run": run}));
    assert_eq!(said["content"][0]["text"], "all done", "{said}");
    assert_eq!(said["structuredContent"]["outcome"], "completed");
    served.leave();
    let trace = bench.run(&["trace", &run]).ok().out;
    assert!(trace.contains("run.finished"), "{trace}");
}

/// Spec: Q10. While another process goes on with a run that waited here, it is running; what it comes to is asked of
/// its record.
#[cfg(unix)]
#[test]
fn run_that_another_process_resumed_is_running() {
    let (bench, _model) = bench_with("cat go");
    let pipe = bench.path().join("go");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut served = Served::start(&bench);
    let said = served.call(json!({"input": "say hi"}));
    let run = said["structuredContent"]["run"].as_str().unwrap().to_owned();
    bench.run(&["approve", "last", "--by", "ops"]).ok();
    let mut other = bench.command(&["resume", &run]).stdout(Stdio::null()).spawn().unwrap();
    // The command reads from the pipe.
    let go = std::fs::File::create(&pipe).unwrap();

    for _ in 0..2 {
        let said = served.call(json!({"run": run}));
        assert_eq!(said["structuredContent"], json!({"outcome": "running", "run": run}), "{said}");
        assert_eq!(said["isError"], false);
    }
    drop(go);
    assert!(other.wait().unwrap().success());
    let said = served.call(json!({"run": run}));
    assert_eq!(said["content"][0]["text"], "all done", "{said}");
    served.leave();
}

/// Spec: Q10. SCENARIOS.md: the position in the script is the number of outcomes in the run's log, whatever other
/// runs are served beside it, and whichever process goes on with it.
#[test]
fn served_runs_have_their_own_place_in_scripts() {
    let bench = Bench::new().with("BACKSTOP_STORE", STORE);
    let calls = |id: &str| {
        format!(
            "[[model]]\ntool_calls = [{{ id = \"{id}\", name = \"refund\", arguments = {{}} }}]\n"
        )
    };
    let script = format!(
        "{}[[model]]\nerror = {{ kind = \"transient\" }}\n{}[[model]]\ntext = \"all done\"\n",
        calls("c1"),
        calls("c2")
    );
    let retry = "[agent.retry]\nbase_ms = 1\n";
    bench.agent(&script, &format!("{}{retry}", crate::running::ASKS));
    let approve_all = |expected: usize| {
        let open = bench.run(&["approvals", "--json"]).ok().json();
        assert_eq!(open.len(), expected);
        for approval in open {
            bench.run(&["approve", approval["id"].as_str().unwrap(), "--by", "ops"]).ok();
        }
    };
    let waits = |said: &Value| {
        assert_eq!(said["structuredContent"]["outcome"], "waiting_approval", "{said}");
        said["structuredContent"]["run"].as_str().unwrap().to_owned()
    };

    let mut served = Served::start(&bench);
    let runs = ["one", "two", "three"].map(|input| waits(&served.call(json!({"input": input}))));
    approve_all(3);
    // In the process that started them.
    for run in &runs[..2] {
        waits(&served.call(json!({"run": run})));
    }
    served.leave();
    approve_all(2);
    let mut served = Served::start(&bench);
    // In another process, in which the third run is one step behind.
    for (run, text) in [(&runs[0], "all done"), (&runs[2], ""), (&runs[1], "all done")] {
        let said = served.call(json!({"run": run}));
        match text {
            "" => assert_eq!(waits(&said), *run),
            text => assert_eq!(said["content"][0]["text"], text, "{said}"),
        }
    }
    approve_all(1);
    let resumed = bench.run(&["resume", &runs[2]]).ok();
    assert_eq!(resumed.out, "all done\n");
    let again = served.call(json!({"run": runs[2]}));
    assert_eq!(again["content"][0]["text"], "all done", "{again}");
    served.leave();
    for run in &runs {
        bench.run(&["replay", run]).ok();
    }
}

/// Spec: Q10, C3
#[test]
fn mistakes_are_told_before_anything_is_served() {
    let (bench, _model) = bench();
    bench.run(&["mcp"]).fails(2, "required arguments");
    bench.run(&["mcp", "nowhere.toml"]).fails(2, "cannot be read");
    bench.run(&["mcp", "agent.toml", "--store", "sqlite::memory:"]).fails(2, "a store in memory");
    bench.run(&["mcp", "agent.toml", "--token-file", "x"]).fails(2, "--listen");
    let refused = bench.run(&["mcp", "agent.toml", "--listen", "0.0.0.0:0"]);
    assert!(!refused.fails(2, "no token is set").err.contains("listening"));
    bench.write("empty", "\n");
    let empty =
        bench.run(&["mcp", "agent.toml", "--listen", "127.0.0.1:0", "--token-file", "empty"]);
    empty.fails(2, "empty holds no token");
    let twice = bench.run(&["mcp", "agent.toml", "agent.toml"]);
    twice.fails(2, "agent");
}

/// Spec: Q10. Over HTTP, with a token; SIGTERM ends it.
#[cfg(unix)]
#[test]
fn http_needs_the_token_and_stops_when_told() {
    let (bench, _model) = bench();
    let bench = bench.with("BACKSTOP_TOKEN", "s3cret-of-this-test");
    let mut command = bench.command(&["mcp", "agent.toml", "--listen", "127.0.0.1:0"]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut err = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    err.read_line(&mut line).unwrap();
    let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
    let ask = |token: &str| {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"},
        }})
        .to_string();
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        write!(
            stream,
            "POST /mcp HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\
             accept: application/json, text/event-stream\r\ncontent-type: application/json\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut status = String::new();
        BufReader::new(stream).read_line(&mut status).unwrap();
        status
    };
    assert!(ask("another").contains("401"), "a wrong token");
    assert!(ask("s3cret-of-this-test").contains("200"), "the token");
    let id = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    assert!(child.wait().unwrap().success());
}

/// Spec: Q10. Where there are too many open files, the server waits for one to be closed, and does not spin.
#[cfg(unix)]
#[test]
fn server_waits_where_files_run_out() {
    let (bench, _model) = bench();
    let bench = bench.with("BACKSTOP_LOG", "warn");
    let mut command = std::process::Command::new("sh");
    let served = bench.command(&["mcp", "agent.toml", "--listen", "127.0.0.1:0"]);
    command.args(["-c", "ulimit -n 48; exec \"$@\"", "sh"]);
    command.arg(served.get_program()).args(served.get_args()).current_dir(bench.path());
    for (name, value) in served.get_envs() {
        command.env(name, value.unwrap());
    }
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut err = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    err.read_line(&mut line).unwrap();
    let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
    let connect = || std::net::TcpStream::connect(&address).unwrap();

    let idle: Vec<_> = (0..64).map(|_| connect()).collect();
    line.clear();
    err.read_line(&mut line).unwrap();
    assert!(line.contains("a connection was not accepted"), "{line}");
    drop(idle);
    let mut stream = connect();
    write!(stream, "GET / HTTP/1.1\r\nhost: {address}\r\n\r\n").unwrap();
    let mut status = String::new();
    BufReader::new(stream).read_line(&mut status).unwrap();
    assert!(status.contains("404"), "{status}");

    let id = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut err, &mut rest).unwrap();
    assert!(child.wait().unwrap().success());
    let warnings = rest.matches("a connection was not accepted").count();
    assert!(warnings < 10, "{warnings} warnings");
}
